/** What was decided of a tool call before it ran, as the facts between it and its result tell. Pure. */
import type { Entry } from "../net/wire";

export interface Verdict {
  /** What it ran with, where that is not what the model asked for. */
  ranWith: { input: unknown } | null;
  /** The answers of people, and the hooks that refused it; in order. */
  decisions: readonly Entry[];
}

interface HookAnswer {
  permissionDecision?: unknown;
  updatedInput?: unknown;
}

/** The verdict on a call that was asked for with `asked`; undefined where that is too long to be here. */
export function verdictOf(facts: readonly Entry[], callId: string, asked: unknown): Verdict {
  let input: unknown = asked;
  const decisions: Entry[] = [];
  for (const fact of facts) {
    if (fact.type === "hook_ran" && fact.event === "PreToolUse" && callOf(fact) === callId) {
      const { permissionDecision, updatedInput } = answerOf(fact);
      if (fact.exit === 2 || permissionDecision === "deny") decisions.push(fact);
      else input = updatedInput ?? input;
    }
    if (fact.call_id !== callId) continue;
    if (fact.type === "approval_requested" && asked !== undefined) input = fact.arguments ?? input;
    if (fact.type === "approval_answered") {
      decisions.push(fact);
      if (fact.approve === true) input = fact.arguments ?? input;
    }
  }
  return { ranWith: JSON.stringify(input) === JSON.stringify(asked) ? null : { input }, decisions };
}

/** A decision in words. */
export function wordsOf(decision: Entry): string {
  if (decision.type === "hook_ran") return `A hook refused it: ${decision.handler ?? ""}`;
  const yes = decision.arguments == null ? "Approved" : "Approved with another input";
  return `${decision.approve === true ? yes : "Denied"}${decision.reason ? `: ${decision.reason}` : ""}`;
}

const callOf = ({ input }: Entry): unknown => (input as { tool_use_id?: unknown } | null)?.tool_use_id;

/** What a hook's command answered in JSON, if it did. */
function answerOf({ output }: Entry): HookAnswer {
  const { stdout } = (output ?? {}) as { stdout?: unknown };
  if (typeof stdout !== "string") return {};
  try {
    const said = JSON.parse(stdout) as { hookSpecificOutput?: HookAnswer } | null;
    return said?.hookSpecificOutput ?? {};
  } catch {
    return {};
  }
}
