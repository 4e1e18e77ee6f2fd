interface PillProps {
  /** What it is of: its colour. */
  tone: Tone;
  words: string;
  testId?: string;
  status?: string;
}

export type Tone = "good" | "busy" | "bad" | "calm";

/** A status, in words and not by colour alone. */
export function Pill({ tone, words, testId, status }: PillProps) {
  return (
    <span class={`pill ${tone}`} data-testid={testId} data-status={status ?? words}>
      {words}
    </span>
  );
}
