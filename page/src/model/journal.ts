/** The journal as a list of everything: what kind an entry is, and what it says in one line. Pure. */
import { showJson } from "../net/json";
import type { Entry } from "../net/wire";

export type Kind = "message" | "context" | "hook" | "fact";

/** Injected context is what the model reads and the transcript hides. */
export function kindOf(entry: Entry): Kind {
  if (entry.parent_id !== undefined) return entry.meta || entry.role === "system" ? "context" : "message";
  return entry.type === "hook_ran" ? "hook" : "fact";
}

const HEADER = new Set(["session_id", "seq", "id", "type", "created_at", "parent_id", "siblings"]);

/** What it says, for one line of a list. */
export function summaryOf(entry: Entry): string {
  if (entry.type === "message") {
    const parts = (entry.parts ?? []).map((part) => {
      if (part.type === "tool_call") return `→ ${part.name ?? "tool"}`;
      if (part.type === "tool_result") return `← ${part.name ?? "tool"}${part.is_error ? " (error)" : ""}`;
      return part.text ?? part.name ?? part.type;
    });
    return `${entry.role ?? ""}: ${parts.join(" · ")}`.slice(0, 400);
  }
  const fields = Object.entries(entry).filter(([name]) => !HEADER.has(name));
  return fields
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" · ")
    .slice(0, 400);
}

export const rawOf = (entry: Entry): string => showJson(entry);

/** Whether something of it was too long for the page that it came in. */
export const isCut = (entry: Entry): boolean => JSON.stringify(entry).includes('"elided":true');
