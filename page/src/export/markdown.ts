/** A conversation as Markdown: what a person would paste into a document. Pure. */
import type { Block } from "../model/blocks";
import { wordsOf } from "../model/verdict";
import { showJson } from "../net/json";
import type { Part } from "../net/wire";
import { SPEAKERS } from "../text/format";
import type { Conversation } from "./read";


export function toMarkdown({ sessionId, title, blocks, verdicts }: Conversation): string {
  const head = `# ${title.replace(/\s+/g, " ")}\n\nSession \`${sessionId.replaceAll("`", "'")}\`\n`;
  return [head, ...blocks.map((block) => blockOf(block, verdicts))].filter(Boolean).join("\n");
}

function blockOf({ entry, calls, orphans }: Block, verdicts: Conversation["verdicts"]): string {
  if (entry.type === "compaction") {
    return `---\n\n*The model reads a summary of what is above:*\n\n${String(entry.summary ?? "")}\n`;
  }
  if (entry.type !== "message") return `---\n\n*${entry.kind ?? entry.type}*\n\n${fence(showJson(entry.data ?? null), "json")}\n`;
  const lines = [`## ${SPEAKERS[entry.role ?? ""] ?? entry.role} · ${entry.created_at}\n`];
  let call = 0;
  for (const part of entry.parts ?? []) {
    if (part.type === "text") lines.push(`${part.text ?? ""}\n`);
    else if (part.type === "reasoning") lines.push(`<details><summary>Reasoning</summary>\n\n${part.text ?? ""}\n\n</details>\n`);
    else if (part.type === "file") lines.push(`*File: ${part.name ?? part.media_type ?? "file"}*\n`);
    else if (part.type === "tool_call") {
      lines.push(`**${part.name ?? "tool"}**\n\n${fence(showJson(part.arguments ?? null), "json")}\n`);
      const { ranWith = null, decisions = [] } = verdicts.get(part) ?? {};
      if (ranWith !== null) lines.push(`*It ran with this input instead:*\n\n${fence(showJson(ranWith.input), "json")}\n`);
      for (const fact of decisions) lines.push(`*${wordsOf(fact)}*\n`);
      const result = calls[call++]?.result;
      if (result) lines.push(`${resultOf(result)}\n`);
    } else if (part.type === "tool_result" && orphans.includes(part)) lines.push(`${resultOf(part)}\n`);
  }
  if (entry.end) lines.push(`*— ${entry.end} here*\n`);
  return lines.join("\n");
}

function resultOf(part: Part): string {
  const note = part.interrupted ? "*interrupted*\n\n" : part.is_error ? "*error*\n\n" : "";
  return note + fence((part.parts ?? []).map((piece) => piece.text ?? `[${piece.name ?? piece.type}]`).join(""), "");
}

/** A fence that is longer than any inside of it. */
export function fence(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const ticks = "`".repeat(longest + 1);
  return `${ticks}${language}\n${text}\n${ticks}`;
}
