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
const conversation = { sessionId: EVIL, title: EVIL, blocks: toBlocks(entries) };

test("a fence is longer than what it holds", () => {
  expect(fence("a ```` b", "js")).toBe("`````js\na ```` b\n`````");
});

test("Markdown has what was said and done", () => {
  const text = toMarkdown(conversation);
  expect(text).toContain("**bold**");
  expect(text).toContain("````json");
});

test("the HTML file runs nothing, whatever was said", () => {
  const page = new DOMParser().parseFromString(toHtml(conversation, createRenderer(window)), "text/html");
  expect(page.querySelectorAll("script, iframe, img")).toHaveLength(0);
  for (const element of page.querySelectorAll("*")) {
    for (const { name } of element.attributes) expect(name).not.toMatch(/^on/);
  }
  expect(page.title).toBe(EVIL);
  expect(page.querySelector("meta[http-equiv]")?.getAttribute("content")).toContain("default-src 'none'");
});
