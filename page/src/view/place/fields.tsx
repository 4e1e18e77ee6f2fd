interface ChoiceProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, words: string])[];
  testId?: string;
  onChange(value: string): void;
}

/** One of a few. */
export function Choice({ label, value, options, testId, onChange }: ChoiceProps) {
  return (
    <label>
      {label}
      <select value={value} data-testid={testId} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The name of a loop; empty is the server's default. */
export function LoopField({ value, onChange }: { value: string; onChange(value: string): void }) {
  return (
    <label>
      Loop
      <input value={value} placeholder="the server's default" data-testid="loop-field" onInput={(event) => onChange(event.currentTarget.value)} />
    </label>
  );
}
