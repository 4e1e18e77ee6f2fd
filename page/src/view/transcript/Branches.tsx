import type { Entry } from "../../net/wire";
import { readSibling, reading } from "../../state/reading";
import { session } from "../../state/session";
import { Icon } from "../part/Icon";

/** Where branches part: which one is shown, and the way to the ones beside it. */
export function Branches({ entry }: { entry: Entry }) {
  const siblings = entry.siblings ?? [entry.id];
  const at = siblings.indexOf(entry.id);
  const walk = (to: number): void => {
    const shown = session.value;
    const siblingId = siblings[to];
    if (shown === null || siblingId === undefined) return;
    const { path } = reading.value ?? shown;
    void readSibling(shown.sessionId, path, entry, siblingId, shown.path.leafId);
  };
  return (
    <nav class="branches" aria-label="Branches that part here" data-testid="branches">
      <button type="button" class="tiny" aria-label="The branch before" disabled={at <= 0} data-testid="branch-before" onClick={() => walk(at - 1)}>
        <Icon name="left" size={13} />
      </button>
      <span aria-label={`Branch ${at + 1} of ${siblings.length}`}>
        {at + 1} / {siblings.length}
      </span>
      <button
        type="button"
        class="tiny"
        aria-label="The next branch"
        disabled={at >= siblings.length - 1}
        data-testid="branch-next"
        onClick={() => walk(at + 1)}
      >
        <Icon name="right" size={13} />
      </button>
    </nav>
  );
}
