import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface FoldProps {
  class: string;
  testId?: string;
  summary: ComponentChildren;
  data?: Record<string, string | undefined>;
  /** Whether it is open until somebody opens or closes it. */
  isOpen?: boolean;
  children(): ComponentChildren;
}

/** A fold whose content is made when it is opened first, and kept then. */
export function Fold({ class: name, testId, summary, data, isOpen = false, children }: FoldProps) {
  const [choice, setChoice] = useState<boolean | null>(null);
  const [wasOpened, setOpened] = useState(isOpen);
  const open = choice ?? isOpen;
  if (open && !wasOpened) setOpened(true);
  return (
    <details
      class={name}
      data-testid={testId}
      {...data}
      open={open}
      onToggle={(event) => {
        if (event.currentTarget.open !== open) setChoice(event.currentTarget.open);
      }}
    >
      <summary>{summary}</summary>
      {(open || wasOpened) && <div class="folded">{children()}</div>}
    </details>
  );
}
