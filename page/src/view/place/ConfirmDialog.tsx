import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { attempt } from "../../state/notice";
import { Dialog } from "../part/Dialog";

interface ConfirmDialogProps {
  title: string;
  /** What the button says that does it, and the one that does not. */
  verb: string;
  keep: string;
  isDanger?: boolean;
  onConfirm(): Promise<unknown>;
  onDone?(): void;
  onClose(): void;
  children: ComponentChildren;
}

/** Asks once, and says what follows. */
export function ConfirmDialog({ title, verb, keep, isDanger = true, onConfirm, onDone, onClose, children }: ConfirmDialogProps) {
  const [isBusy, setBusy] = useState(false);
  const confirm = async (): Promise<void> => {
    setBusy(true);
    const isDone = await attempt(onConfirm);
    onClose();
    if (isDone) onDone?.();
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      testId="confirm-dialog"
      actions={
        <>
          <button type="button" autofocus onClick={onClose}>
            {keep}
          </button>
          <button type="button" class={isDanger ? "danger solid" : "primary"} disabled={isBusy} data-testid="confirm" onClick={() => void confirm()}>
            {verb}
          </button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}
