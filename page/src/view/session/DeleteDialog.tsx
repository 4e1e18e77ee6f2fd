import { useEffect, useState } from "preact/hooks";
import { deleteSession, lookAt } from "../../net/api";
import type { Look } from "../../net/wire";
import { attempt } from "../../state/notice";
import { go, sessionId } from "../../state/route";
import { listing } from "../../state/sessions";
import { plural, showFullTime } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Dialog } from "../part/Dialog";

/** Asks once, and says what will be lost. */
export function DeleteDialog({ id, onClose }: { id: string; onClose(): void }) {
  const [look, setLook] = useState<Look | null>(null);
  useEffect(() => void lookAt(id).then(setLook, () => undefined), []);
  const remove = async (): Promise<void> => {
    const isDone = await attempt(() => deleteSession(id));
    onClose();
    if (isDone && sessionId.value === id) go("#");
  };
  const queued = look?.queued?.length ?? 0;
  const children = listing.value.sessions.filter((other) => other.parent_id === id).length;
  return (
    <Dialog
      title="Delete this session?"
      onClose={onClose}
      testId="delete-dialog"
      actions={
        <>
          <button type="button" autofocus onClick={onClose}>
            Keep it
          </button>
          <button type="button" class="danger solid" data-testid="delete-confirm" onClick={() => void remove()}>
            Delete for ever
          </button>
        </>
      }
    >
      <p>
        {look?.title ? (
          <>
            “<bdi>{visibleText(look.title)}</bdi>” (<code>{id}</code>)
          </>
        ) : (
          <code>{id}</code>
        )}{" "}
        will be gone, for everyone who reads it. This cannot be taken back.
      </p>
      <ul class="losses" data-testid="losses">
        {look !== null && (
          <>
            <li>
              {plural(look.last_seq ?? 0, "entry", "entries")} of its journal, all branches included, since{" "}
              {showFullTime(look.created_at)}
            </li>
            {look.turn && <li>The turn that runs now is stopped</li>}
            {queued > 0 && <li>{plural(queued, "message")} that wait to be run</li>}
            {children > 0 && <li>Not its forks: {plural(children, "session stays", "sessions stay")}</li>}
          </>
        )}
        <li>What its tools did in the world stays as it is</li>
      </ul>
    </Dialog>
  );
}
