import { useState } from "preact/hooks";
import { isMaking, newSession } from "../../state/sessions";
import { Dialog } from "../part/Dialog";
import { LoopField, RuntimeField } from "../place/fields";

/** Makes a session with a loop and a runtime of one's choice. */
export function NewSessionDialog() {
  const [id, setId] = useState("");
  const [loop, setLoop] = useState("");
  const [runtime, setRuntime] = useState("");
  const close = (): void => {
    isMaking.value = false;
  };
  const make = async (): Promise<void> => {
    const wanted = { ...(id !== "" && { session_id: id }), ...(loop !== "" && { loop }), ...(runtime !== "" && { runtime }) };
    if (await newSession(wanted)) close();
  };
  return (
    <Dialog
      title="New session"
      onClose={close}
      onSubmit={() => void make()}
      testId="new-session-dialog"
      actions={
        <>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" data-testid="new-session-confirm">
            Make it
          </button>
        </>
      }
    >
      <LoopField value={loop} onChange={setLoop} />
      <RuntimeField value={runtime} onChange={setRuntime} />
      <label>
        Its id
        <input value={id} placeholder="made up" data-testid="new-session-id" onInput={(event) => setId(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
