import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { attempt } from "../../state/notice";
import { visibleText } from "../../text/visible";
import { Dialog } from "../part/Dialog";

interface ReasonDialogProps {
  title: string;
  verb: string;
  isRequired?: boolean;
  onReason(reason: string): Promise<unknown>;
  onDone(): void;
  onClose(): void;
  children: ComponentChildren;
}

/** Asks why, for who reads it later. */
export function ReasonDialog({ title, verb, isRequired = false, onReason, onDone, onClose, children }: ReasonDialogProps) {
  const [reason, setReason] = useState("");
  const submit = async (): Promise<void> => {
    if (!(await attempt(() => onReason(reason.trim())))) return;
    onClose();
    onDone();
  };
  return (
    <Dialog
      title={visibleText(title)}
      onClose={onClose}
      onSubmit={() => void submit()}
      testId="reason-dialog"
      actions={
        <>
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button type="submit" class="primary" data-testid="reason-confirm">
            {verb}
          </button>
        </>
      }
    >
      <p>{children}</p>
      <label>
        Why{!isRequired && " (if you like)"}
        <input dir="auto" required={isRequired} pattern={isRequired ? ".*\\S.*" : undefined} value={reason} data-testid="reason" onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
