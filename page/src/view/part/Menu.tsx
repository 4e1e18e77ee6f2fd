import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./Icon";

export interface MenuItem {
  label: string;
  onChoose(): void;
  testId?: string;
  isDanger?: boolean;
  isDisabled?: boolean;
  hint?: string;
}

interface MenuProps {
  label: string;
  testId?: string;
  items: readonly MenuItem[];
  children?: ComponentChildren;
}

/** A button with a menu: arrow keys, Home, End and Escape as menus have them. */
export function Menu({ label, testId, items, children }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  // Before the next key can come.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    frame.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const leave = (event: Event): void => {
      if (event.target instanceof Node && !frame.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("focusin", leave);
    };
  }, [isOpen]);

  const onKeyDown = (event: KeyboardEvent): void => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
      button.current?.focus();
      return;
    }
    const found = [...(frame.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
    const at = found.indexOf(document.activeElement as HTMLElement);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: Math.max(at, 0) - 1, Home: 0, End: -1 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    found.at(to % found.length)?.focus();
  };

  return (
    <div class="menu" ref={frame} onKeyDown={onKeyDown}>
      <button
        ref={button}
        type="button"
        class="quiet square"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        data-testid={testId}
        onClick={() => setOpen(!isOpen)}
      >
        {children ?? <Icon name="more" />}
      </button>
      {isOpen && (
        <div role="menu" aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              class={item.isDanger ? "danger" : undefined}
              disabled={item.isDisabled}
              data-testid={item.testId}
              onClick={() => {
                setOpen(false);
                button.current?.focus();
                item.onChoose();
              }}
            >
              {item.label}
              {item.hint && <small>{item.hint}</small>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
