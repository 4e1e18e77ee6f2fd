import { useEffect, useState } from "preact/hooks";
import { attempt } from "../../state/notice";
import { copyText } from "../../text/clip";
import { Icon } from "./Icon";

interface CopyProps {
  /** What is copied; asked for when it is wanted. */
  text(): string | Promise<string>;
  label: string;
  testId?: string;
}

/** Copies, and says that it did. */
export function Copy({ text, label, testId }: CopyProps) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setDone(false), 1_500);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async (): Promise<void> => {
    setDone(await attempt(async () => copyText(await text())));
  };
  return (
    <button
      type="button"
      class={isDone ? "tiny done" : "tiny"}
      data-testid={testId}
      aria-label={isDone ? "Copied" : label}
      title={label}
      onClick={() => void copy()}
    >
      <Icon name={isDone ? "check" : "copy"} size={14} />
    </button>
  );
}
