/** A path as a person reads it: tool results stand with their calls. Pure. */
import type { LiveMessage } from "./live";
import type { Entry, Part } from "./wire";

export interface Call {
  call: Part;
  result: Part | null;
  /** The entry that the result came in. */
  resultEntry: Entry | null;
}

export interface Block {
  entry: Entry;
  /** The calls of an assistant's message, in order. */
  calls: readonly Call[];
  /** Results whose call is not on the loaded path. */
  orphans: readonly Part[];
}

/**
 * The blocks of a path. A result belongs to the nearest call of its id that has none; a real result
 * takes the place of an interrupted one, never the other way round.
 */
export function toBlocks(path: readonly Entry[]): Block[] {
  const blocks: Block[] = [];
  const calls: Call[] = [];
  for (const entry of path) {
    if (entry.type === "message" && entry.meta) continue;
    const own: Call[] = [];
    const orphans: Part[] = [];
    for (const part of entry.type === "message" ? (entry.parts ?? []) : []) {
      if (part.type === "tool_call") own.push({ call: part, result: null, resultEntry: null });
      else if (part.type === "tool_result" && !answer(calls, part, entry)) orphans.push(part);
    }
    // Nearest first; the calls of one message in their own order.
    calls.unshift(...own);
    if (entry.role === "tool" && orphans.length === 0 && onlyResults(entry)) continue;
    blocks.push({ entry, calls: own, orphans });
  }
  return blocks;
}

function answer(calls: readonly Call[], result: Part, entry: Entry): boolean {
  const call = calls.find(
    (slot) =>
      (result.call_id === undefined || slot.call.call_id === result.call_id) &&
      (slot.result === null || (slot.result.interrupted === true && result.interrupted !== true)),
  );
  if (call === undefined) return false;
  call.result = result;
  call.resultEntry = entry;
  return true;
}

function onlyResults(entry: Entry): boolean {
  return (entry.parts ?? []).every((part) => part.type === "tool_result");
}

/** The output that a call has shown so far, and the message that it is. */
export function liveOutput(live: readonly LiveMessage[], callId: string | undefined): string | null {
  const message = live.find((other) => other.callId !== null && other.callId === callId);
  return message === undefined ? null : liveText(message);
}

export function liveText(message: LiveMessage): string {
  return message.parts.map((part) => part?.text ?? "").join("");
}
