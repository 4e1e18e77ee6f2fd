interface SegmentsProps {
  label: string;
  name: string;
  value: string;
  options: readonly (readonly [value: string, words: string])[];
  onChange(value: string): void;
}

/** One of a few, all of them seen: radio buttons in a row. */
export function Segments({ label, name, value, options, onChange }: SegmentsProps) {
  return (
    <fieldset class="segments">
      <legend>{label}</legend>
      <div>
        {options.map(([each, words]) => (
          <label key={each}>
            <input type="radio" name={name} value={each} checked={each === value} data-testid={`${name}-${each}`} onChange={() => onChange(each)} />
            <span>{words}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
