/** What became of calls and words that were cut off, as the facts after them tell it. Pure. */
import type { Block } from "./blocks";
import type { Entry } from "../net/wire";

export interface Aftermath {
  /** The runtimes that were lost before the turn ended. */
  lost: readonly Entry[];
  /** The end of the turn. */
  ended: Entry | null;
  /** Results that came after their calls had been interrupted. */
  late: readonly Entry[];
}

const TELLING = new Set(["runtime_lost", "turn_ended", "late_result", "tool_dispatched"]);

export const isTelling = (entry: Entry): boolean => TELLING.has(entry.type);

/** The ids of its calls that were cut off. */
export function cutCalls({ calls }: Block): ReadonlySet<string> {
  return new Set(calls.flatMap(({ call, result }) => (result?.interrupted && call.call_id ? [call.call_id] : [])));
}

export const isCutOff = (block: Block): boolean => block.entry.end != null || cutCalls(block).size > 0;

/** What facts, some of them perhaps twice, tell of a block. */
export function aftermathOf(facts: readonly Entry[], block: Block): Aftermath {
  const bySeq = new Map(facts.filter(({ seq }) => seq > block.entry.seq).map((fact) => [fact.seq, fact]));
  const calls = new Set(cutCalls(block));
  const lost: Entry[] = [];
  const late: Entry[] = [];
  let ended: Entry | null = null;
  for (const fact of [...bySeq.values()].sort((one, other) => one.seq - other.seq)) {
    if (fact.type === "runtime_lost" && ended === null) lost.push(fact);
    if (fact.type === "turn_ended") ended ??= fact;
    // From here on the id is that of another call.
    if (fact.type === "tool_dispatched" && ended !== null) calls.delete(fact.call_id ?? "");
    if (fact.type === "late_result" && calls.has(fact.call_id ?? "")) late.push(fact);
  }
  return { lost, ended, late };
}
