/**
 * A conversation as one HTML file that opens anywhere: no script, nothing fetched, its own policy.
 */
import type { Block } from "../model/blocks";
import { type Verdict, wordsOf } from "../model/verdict";
import { showJson } from "../net/json";
import type { Part } from "../net/wire";
import { showFullTime, SPEAKERS } from "../text/format";
import { escapeHtml } from "../text/highlight";
import { visibleCode, visibleText } from "../text/visible";
import type { Conversation } from "./read";
import style from "./html.css?raw";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const ENDINGS: Record<string, string> = { stopped: "Stopped here", interrupted: "Interrupted here", failed: "Failed here" };
const IMAGES = /^image\/(?:png|jpeg|gif|webp)$/;

/** `markdown` makes safe HTML of what somebody wrote. */
export function toHtml(conversation: Conversation, markdown: (source: string) => string): string {
  const { title, sessionId, blocks, verdicts } = conversation;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>${text(title)}</title>
<style>${style}</style>
</head>
<body>
<main>
<header><h1 dir="auto">${text(title)}</h1>${title === sessionId ? "" : `<p>Session <code>${text(sessionId)}</code></p>`}</header>
${blocks.map((block) => blockOf(block, verdicts, markdown)).join("\n")}
</main>
</body>
</html>
`;
}

const text = (value: string): string => escapeHtml(visibleText(value));
const pre = (value: string): string => `<pre dir="ltr">${escapeHtml(visibleCode(value))}</pre>`;

function blockOf(
  { entry, calls, orphans }: Block,
  verdicts: Conversation["verdicts"],
  markdown: (source: string) => string,
): string {
  if (entry.type === "compaction") {
    return fold("The model reads a summary of what is above", `<div class="markdown">${markdown(String(entry.summary ?? ""))}</div>`);
  }
  if (entry.type !== "message") return fold(entry.kind ?? entry.type, pre(showJson(entry.data ?? null)));
  const role = entry.role ?? "assistant";
  let call = 0;
  const parts = (entry.parts ?? []).map((part) => {
    switch (part.type) {
      case "text":
        return role === "assistant"
          ? `<div class="markdown" dir="auto">${markdown(part.text ?? "")}</div>`
          : `<p class="plain" dir="auto">${text(part.text ?? "")}</p>`;
      case "reasoning":
        return fold("Reasoning", `<p class="plain" dir="auto">${text(part.text ?? "")}</p>`);
      case "file":
        return fileOf(part);
      case "tool_call": {
        const result = calls[call++]?.result ?? null;
        const said = result === null ? "<p>No result.</p>" : resultOf(result);
        const state = result?.interrupted ? " · interrupted" : result?.is_error ? " · error" : "";
        return fold(`${part.name ?? "tool"}${state}`, `<h3>Input</h3>${pre(showJson(part.arguments ?? null))}${verdictHtml(verdicts.get(part))}<h3>Output</h3>${said}`);
      }
      case "tool_result":
        return orphans.includes(part) ? fold(`Result of ${part.name ?? "a call"}`, resultOf(part)) : "";
      default:
        return fold(part.type, pre(showJson(part)));
    }
  });
  const time = `<time datetime="${escapeHtml(entry.created_at)}">${text(showFullTime(entry.created_at))}</time>`;
  const end = entry.end ? `<p class="ending">${ENDINGS[entry.end] ?? ""}</p>` : "";
  return `<article class="${role === "user" ? "user" : "other"}" id="seq-${entry.seq}">
<p class="who">${text(SPEAKERS[role] ?? role)} ${time}</p>
${parts.join("\n")}${end}
</article>`;
}

const fold = (label: string, content: string): string =>
  `<details><summary>${text(label)}</summary>${content}</details>`;

function verdictHtml(verdict: Verdict | undefined): string {
  if (verdict === undefined) return "";
  const { ranWith, decisions } = verdict;
  const input = ranWith === null ? "" : `<h3>It ran with this input instead</h3>${pre(showJson(ranWith.input))}`;
  return input + decisions.map((fact) => `<p class="who">${text(wordsOf(fact))}</p>`).join("");
}

const resultOf = (part: Part): string =>
  (part.parts ?? []).map((piece) => (piece.type === "file" ? fileOf(piece) : pre(piece.text ?? showJson(piece)))).join("");

function fileOf(part: Part): string {
  const name = text(part.name ?? part.media_type ?? "file");
  if (part.data && IMAGES.test(part.media_type ?? "") && /^[A-Za-z0-9+/=]*$/.test(part.data)) {
    return `<img src="data:${part.media_type};base64,${part.data}" alt="${name}">`;
  }
  return `<p class="file">File: ${name}</p>`;
}
