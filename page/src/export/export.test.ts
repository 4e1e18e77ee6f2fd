// @vitest-environment jsdom
import { expect, test } from "vitest";
import { toBlocks } from "../model/blocks";
import type { Entry } from "../net/wire";
import { createRenderer } from "../text/markdown";
import { toHtml } from "./html";
import { fence, toMarkdown } from "./markdown";

const EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>";
const entries: Entry[] = [
  { seq: 1, id: "a", type: "message", created_at: "2026-01-01T00:00:00Z", parent_id: null, role: "user", parts: [{ type: "text", text: EVIL }] },
  {
    seq: 2,
    id: "b",
    type: "message",
    created_at: "2026-01-01T00:00:00Z",
    parent_id: "a",
    role: "assistant",
    parts: [
      { type: "text", text: `**bold** ${EVIL}` },
      { type: "tool_call", call_id: "c", name: EVIL, arguments: { x: "```" } },
      { type: "file", media_type: 'image/png" onerror="alert(1)', data: '"><script>', name: EVIL },
    ],
  },
  { seq: 3, id: "c", type: "message", created_at: "", parent_id: "b", role: "tool", parts: [{ type: "tool_result", call_id: "c", parts: [{ type: "text", text: EVIL }] }] },
];
const blocks = toBlocks(entries);
const call = blocks[1]?.calls[0]?.call;
if (call === undefined) throw new Error("there is one call");
const decision: Entry = { seq: 3, id: "f", type: "approval_answered", created_at: "", approve: true, reason: `less ${EVIL}`, arguments: {} };
const verdicts = new Map([[call, { ranWith: { input: { x: 4 } }, decisions: [decision] }]]);
const conversation = { sessionId: "the id", title: EVIL, blocks, verdicts };

test("a fence is longer than what it holds", () => {
  expect(fence("a ```` b", "js")).toBe("`````js\na ```` b\n`````");
});

test("Markdown has what was said and done", () => {
  const text = toMarkdown(conversation);
  expect(text).toContain("**bold**");
  expect(text).toContain("````json");
  expect(text).toContain("It ran with this input instead");
  expect(text).toContain("*Approved with another input: less");
});

test("the HTML file runs nothing, whatever was said", () => {
  const page = new DOMParser().parseFromString(toHtml(conversation, createRenderer(window)), "text/html");
  expect(page.querySelectorAll("script, iframe, img")).toHaveLength(0);
  for (const element of page.querySelectorAll("*")) {
    for (const { name } of element.attributes) expect(name).not.toMatch(/^on/);
  }
  expect(page.title).toBe(EVIL);
  expect(page.querySelector("details")?.textContent).toContain('It ran with this input instead{\n  "x": 4\n}');
  expect(page.querySelector("header p")?.textContent).toBe("Session the id");
  expect(page.querySelector("meta[http-equiv]")?.getAttribute("content")).toContain("default-src 'none'");
});
