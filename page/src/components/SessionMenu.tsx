import { useEffect, useRef, useState } from "preact/hooks";
import { compactSession, deleteSession, forkSession } from "../api";
import { newKey } from "../draft";
import { attempt, hrefOf, say } from "../store";

type Open = "menu" | "fork" | "delete" | null;

export function SessionMenu({ id }: { id: string }) {
  const [open, setOpen] = useState<Open>(null);
  const close = (): void => setOpen(null);
  const compact = async (): Promise<void> => {
    close();
    await attempt(async () => {
      const { entry } = await compactSession(id);
      say(
        entry === null
          ? "There is nothing to compact yet."
          : "Compacted: earlier messages stay here, the model reads their summary.",
      );
    });
  };
  return (
    <div class="menu">
      <button
        type="button"
        class="quiet"
        aria-label="Session menu"
        aria-expanded={open === "menu"}
        data-testid="session-menu"
        onClick={() => setOpen(open === "menu" ? null : "menu")}
      >
        ⋯
      </button>
      {open === "menu" && (
        <>
          <div class="veil" onClick={close} />
          <ul role="menu">
            <li>
              <button type="button" role="menuitem" data-testid="fork" onClick={() => setOpen("fork")}>
                Fork…
              </button>
            </li>
            <li>
              <button type="button" role="menuitem" data-testid="compact" onClick={() => void compact()}>
                Compact
              </button>
            </li>
            <li>
              <button
                type="button"
                role="menuitem"
                class="danger"
                data-testid="delete"
                onClick={() => setOpen("delete")}
              >
                Delete…
              </button>
            </li>
          </ul>
        </>
      )}
      {open === "fork" && <ForkDialog id={id} onClose={close} />}
      {open === "delete" && <DeleteDialog id={id} onClose={close} />}
    </div>
  );
}

function useModal() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return dialog;
}

interface DialogProps {
  id: string;
  onClose(): void;
}

function ForkDialog({ id, onClose }: DialogProps) {
  const dialog = useModal();
  const [name, setName] = useState(() => `${id.slice(0, 40)}-${newKey().slice(0, 6)}`);
  const fork = async (event: Event): Promise<void> => {
    event.preventDefault();
    const isDone = await attempt(() => forkSession(id, name));
    onClose();
    if (isDone) location.hash = hrefOf(name);
  };
  return (
    <dialog ref={dialog} onClose={onClose}>
      <form onSubmit={(event) => void fork(event)}>
        <h2>Fork this session</h2>
        <p>A new session with a copy of this transcript. This one stays as it is.</p>
        <label>
          Its id
          <input
            value={name}
            required
            data-testid="fork-id"
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" data-testid="fork-confirm">
            Fork
          </button>
        </div>
      </form>
    </dialog>
  );
}

function DeleteDialog({ id, onClose }: DialogProps) {
  const dialog = useModal();
  const remove = async (): Promise<void> => {
    const isDone = await attempt(() => deleteSession(id));
    onClose();
    if (isDone) location.hash = "";
  };
  return (
    <dialog ref={dialog} onClose={onClose}>
      <h2>Delete this session?</h2>
      <p>
        <code>{id}</code> and all its messages will be gone, for everyone who reads it. This cannot be
        taken back.
      </p>
      <div class="actions">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="danger" data-testid="delete-confirm" onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </dialog>
  );
}
