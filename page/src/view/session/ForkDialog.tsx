import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { forkSession } from "../../net/api";
import { newKey } from "../../state/draft";
import { attempt } from "../../state/notice";
import { go, hrefOf } from "../../state/route";
import { forkId } from "../../text/format";
import { Dialog } from "../part/Dialog";

export interface Forking {
  sessionId: string;
  /** The message that the child ends with; null is the whole conversation. */
  entryId: string | null;
  /** The end of that conversation, where it is a branch that is not the active one. */
  leafId?: string | null;
}

/** What is about to be forked, wherever that was asked for. */
export const forking = signal<Forking | null>(null);

export function ForkDialog() {
  const shown = forking.value;
  return shown === null ? null : <Fork key={shown.entryId} {...shown} />;
}

function Fork({ sessionId, entryId, leafId = null }: Forking) {
  const [name, setName] = useState(() => forkId(sessionId, newKey()));
  const close = (): void => {
    forking.value = null;
  };
  const fork = async (): Promise<void> => {
    const isDone = await attempt(() => forkSession(sessionId, name, entryId ?? leafId ?? undefined));
    if (!isDone) return;
    close();
    go(hrefOf(name));
  };
  return (
    <Dialog
      title={entryId === null ? "Fork this session" : "Fork here"}
      onClose={close}
      onSubmit={() => void fork()}
      testId="fork-dialog"
      actions={
        <>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" data-testid="fork-confirm">
            Fork
          </button>
        </>
      }
    >
      <p>
        {leafId !== null
          ? "A new session with a copy of the branch that is shown. This one stays as it is."
          : entryId === null
          ? "A new session with a copy of this conversation. This one stays as it is."
          : "A new session with a copy of the conversation up to this message. This one stays as it is."}
      </p>
      <label>
        The new session's id
        <input value={name} required data-testid="fork-id" onInput={(event) => setName(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
