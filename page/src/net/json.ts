/** JSON that loses nothing on the way to a person: numbers keep their spelling. */

interface Exact {
  parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
  rawJSON?(source: string): unknown;
}
const exact = JSON as unknown as Exact;

/** Parses `text`; a number that a double cannot hold is kept as raw JSON where the browser can. */
export function parseJson<T>(text: string): T {
  const { rawJSON } = exact;
  if (rawJSON === undefined) return JSON.parse(text) as T;
  return exact.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && !isExact(value, context.source)
      ? rawJSON.call(JSON, context.source)
      : value,
  ) as T;
}

function isExact(value: number, source: string): boolean {
  return Number.isSafeInteger(value) || String(value) === source;
}

/** What a person reads of a JSON value: a string as it is, anything else indented. */
export function showJson(value: unknown): string {
  if (typeof value === "string") return value;
  return JSON.stringify(value, null, 2) ?? "";
}
