import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

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
  useEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown?.showModal();
    return () => {
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
