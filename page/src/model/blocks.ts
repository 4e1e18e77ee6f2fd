/** A path as a person reads it: tool results stand with their calls. Pure. */
import type { LiveMessage } from "./live";
import type { Entry, Part } from "../net/wire";

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
  /** The entries of this block beside which other branches grow. */
  forks: readonly Entry[];
}

/**
 * The blocks of a path. A result belongs to the nearest call of its id that has none; a real result
 * takes the place of an interrupted one, never the other way round.
 */
export function toBlocks(path: readonly Entry[]): Block[] {
  const blocks: Block[] = [];
  const calls: Call[] = [];
  let unplaced: Entry[] = [];
  for (const entry of path) {
    const hasSiblings = (entry.siblings?.length ?? 1) > 1;
    if (entry.type === "message" && entry.meta) {
      // A hidden message has no row of its own: where it forks is shown at the next one that has.
      if (hasSiblings) unplaced.push(entry);
      continue;
    }
    const own: Call[] = [];
    const orphans: Part[] = [];
    for (const part of entry.type === "message" ? (entry.parts ?? []) : []) {
      if (part.type === "tool_call") own.push({ call: part, result: null, resultEntry: null });
      else if (part.type === "tool_result" && !answer(calls, part, entry)) orphans.push(part);
    }
    // Nearest first; the calls of one message in their own order.
    calls.unshift(...own);
    const forks = [...unplaced, ...(hasSiblings ? [entry] : [])];
    unplaced = [];
    const last = blocks.at(-1);
    if (entry.role === "tool" && orphans.length === 0 && onlyResults(entry) && last !== undefined) {
      if (forks.length > 0) blocks[blocks.length - 1] = { ...last, forks: [...last.forks, ...forks] };
      continue;
    }
    blocks.push({ entry, calls: own, orphans, forks });
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

/**
 * The output so far of each open call, by call id. An output that does not say whose it is belongs
 * to the one call that is open, if it is one.
 */
export function liveOutputs(
  blocks: readonly Block[],
  live: readonly LiveMessage[],
): ReadonlyMap<string, LiveMessage> {
  const open = blocks.flatMap(({ calls }) => calls).filter(({ result }) => result === null);
  const ids = new Set(open.map(({ call }) => call.call_id));
  const outputs = live.filter((message) => message.parts.some((part) => part?.kind === "output"));
  const found = new Map<string, LiveMessage>();
  for (const message of outputs) {
    const only = open.length === 1 && outputs.length === 1 ? open[0]?.call.call_id : undefined;
    const callId = message.callId ?? only;
    if (callId !== undefined && ids.has(callId)) found.set(callId, message);
  }
  return found;
}

export function liveText(message: LiveMessage): string {
  return message.parts.map((part) => part?.text ?? "").join("");
}
