import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface FoldProps {
  class: string;
  testId?: string;
  summary: ComponentChildren;
  data?: Record<string, string | undefined>;
  children(): ComponentChildren;
}

/** A fold whose content is made when it is opened first, and kept then. */
export function Fold({ class: name, testId, summary, data, children }: FoldProps) {
  const [wasOpened, setOpened] = useState(false);
  return (
    <details
      class={name}
      data-testid={testId}
      {...data}
      onToggle={(event) => {
        if (event.currentTarget.open) setOpened(true);
      }}
    >
      <summary>{summary}</summary>
      {wasOpened && <div class="folded">{children()}</div>}
    </details>
  );
}
