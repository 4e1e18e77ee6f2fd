/** The whole of the conversation that is shown, read for a file: page by page, long parts included. */
import * as api from "../net/api";
import { toBase64 } from "../net/whole";
import type { Elision, Entry, Part } from "../net/wire";
import { readBetween } from "../net/facts";
import { toBlocks, type Block } from "../model/blocks";
import { type Verdict, verdictOf } from "../model/verdict";

/** A longer part is left out of a file for people, which says so; the JSON lines have it. */
export const MOST_PART_BYTES = 2 * 1024 * 1024;
const PAGE = 200;

export interface Conversation {
  sessionId: string;
  title: string;
  blocks: readonly Block[];
  /** Of the calls that somebody decided on, or that ran with something else than was asked for. */
  verdicts: ReadonlyMap<Part, Verdict>;
}

export type Progress = (done: number) => void;

export async function readConversation(
  sessionId: string,
  title: string,
  leaf: string | null,
  onProgress: Progress,
): Promise<Conversation> {
  const pages: (readonly Entry[])[] = [];
  let before: string | undefined;
  let done = 0;
  for (;;) {
    const page = await api.readTranscript(sessionId, { leaf, limit: PAGE, ...(before !== undefined && { before }) });
    const entries: Entry[] = [];
    for (const entry of page.entries) entries.push(await fill(entry));
    pages.unshift(entries);
    done += entries.length;
    onProgress(done);
    before = page.entries[0]?.id;
    if (!page.has_more || before === undefined) break;
  }
  const blocks = toBlocks(pages.flat());
  return { sessionId, title, blocks, verdicts: await readVerdicts(sessionId, blocks) };
}

async function readVerdicts(sessionId: string, blocks: readonly Block[]): Promise<ReadonlyMap<Part, Verdict>> {
  const verdicts = new Map<Part, Verdict>();
  for (const { entry, calls } of blocks) {
    const end = Math.max(0, ...calls.map(({ resultEntry }) => resultEntry?.seq ?? 0));
    // No more than a dispatch and a result for each call: nobody had a say in it.
    if (end - entry.seq <= calls.length * 2) continue;
    const facts = await readBetween(sessionId, entry.seq, end);
    for (const { call, resultEntry } of calls) {
      const its = facts.filter(({ seq }) => seq < (resultEntry?.seq ?? 0));
      const verdict = verdictOf(its, call.call_id ?? "", call.arguments);
      if (verdict.ranWith !== null || verdict.decisions.length > 0) verdicts.set(call, verdict);
    }
  }
  return verdicts;
}

async function fill(entry: Entry): Promise<Entry> {
  const filled = { ...entry };
  if (entry.parts) filled.parts = await Promise.all(entry.parts.map(fillPart));
  const { summary } = entry;
  if (typeof summary === "object") filled.summary = await readText(summary);
  return filled;
}

async function readText({ href, bytes }: Elision): Promise<string> {
  return bytes > MOST_PART_BYTES ? leftOut(bytes) : (await api.readWhole(href)).text();
}

const leftOut = (bytes: number): string =>
  `[${bytes} bytes are left out here; the export as JSON lines has all of them]`;

async function fillPart(part: Part): Promise<Part> {
  if (part.parts) return { ...part, elided: false, parts: await Promise.all(part.parts.map(fillPart)) };
  if (!part.elided || part.href === undefined) return part;
  const bytes = part.bytes ?? 0;
  const whole = { ...part, elided: false };
  if (part.type === "file") {
    if (bytes > MOST_PART_BYTES) return { ...whole, data: null };
    return { ...whole, data: await toBase64(await api.readWhole(part.href)) };
  }
  const text = await readText({ elided: true, bytes, href: part.href });
  if (part.type === "tool_call") return { ...whole, arguments: text };
  if (part.type === "tool_result") return { ...whole, parts: [{ type: "text", text }] };
  return { ...whole, text };
}
