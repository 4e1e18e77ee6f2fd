import { useState } from "preact/hooks";
import { listLoops, listRuntimes } from "../../net/around";
import { useAround } from "../../state/around";
import { visibleText } from "../../text/visible";

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

/** Stands in the list for a name that is not in it; no name has a tab. */
const OTHER = "\t";

/** The name of a loop: one that the server knows, or any other; empty is the server's default. */
export function LoopField({ value, onChange }: { value: string; onChange(value: string): void }) {
  const { found } = useAround("loop", null, "loops", listLoops);
  const names = found?.loops.map(({ name }) => name) ?? [];
  const [isOther, setOther] = useState(false);
  const isFree = isOther || (value !== "" && found !== null && !names.includes(value));
  const options = [
    ["", found === null ? "the server's default" : `the default: ${visibleText(found.default)}`] as const,
    ...(found?.loops ?? []).map(({ name, missing }) => [name, missing === null ? visibleText(name) : `${visibleText(name)} (not ready)`] as const),
    ...(found === null && value !== "" ? [[value, visibleText(value)] as const] : []),
    [OTHER, "another one…"] as const,
  ];
  const missing = found?.loops.find(({ name }) => name === value)?.missing;
  return (
    <>
      <Choice
        label="Loop: what answers"
        value={isFree ? OTHER : value}
        options={options}
        testId="loop-field"
        onChange={(chosen) => {
          setOther(chosen === OTHER);
          onChange(chosen === OTHER ? "" : chosen);
        }}
      />
      {isFree && (
        <label>
          Its name
          <input dir="ltr" spellcheck={false} placeholder="provider:model" value={value} data-testid="loop-name" onInput={(event) => onChange(event.currentTarget.value)} />
        </label>
      )}
      {missing != null && <p class="hint">{visibleText(missing)}</p>}
    </>
  );
}

/** The name of a runtime that the server knows; empty is the server's default. */
export function RuntimeField({ value, onChange }: { value: string; onChange(value: string): void }) {
  const { found } = useAround("runtime", null, "runtimes", listRuntimes);
  const names = [...new Set([...(found?.map(({ name }) => name) ?? []), ...(value === "" ? [] : [value])])];
  const said = (name: string): string => {
    const status = found?.find((look) => look.name === name)?.status;
    return status === undefined || status === "idle" ? visibleText(name) : `${visibleText(name)} (${status})`;
  };
  return (
    <Choice
      label="Runtime: where its tools run"
      value={value}
      options={[["", "the server's default"], ...names.map((name) => [name, said(name)] as const)]}
      testId="runtime-field"
      onChange={onChange}
    />
  );
}
