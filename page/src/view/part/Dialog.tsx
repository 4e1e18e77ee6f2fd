import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { dismissError, notice, openDialogs } from "../../state/notice";
import { visibleText } from "../../text/visible";

interface DialogProps {
  title: string;
  onClose(): void;
  /** Makes it a form: Enter in a field does it too. */
  onSubmit?(): void;
  actions?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
  testId?: string;
}

/** A modal dialog: the browser keeps the focus inside, closes it with Escape, and gives the focus back. */
export function Dialog({ title, onClose, onSubmit, actions, children, class: name, testId }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [older] = useState(() => notice.peek());
  const problem = notice.value !== older && notice.value?.isError ? notice.value.text : null;
  useEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown?.showModal();
    openDialogs.value += 1;
    return () => {
      openDialogs.value -= 1;
      if (notice.peek() !== older) dismissError();
      shown?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={name}
      data-testid={testId}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit?.();
        }}
      >
        <h2>{title}</h2>
        {children}
        {problem !== null && (
          <p class="problem" role="alert" data-testid="dialog-problem">
            {visibleText(problem)}
          </p>
        )}
        <div class="actions">
          {actions ?? (
            <button type="button" onClick={onClose}>
              Close
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}
