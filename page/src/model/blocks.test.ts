import { expect, test } from "vitest";
import { liveOutputs, toBlocks } from "./blocks";
import type { LiveMessage } from "./live";
import type { Entry, Part } from "../net/wire";

let seq = 0;
function message(role: Entry["role"], parts: Part[], fields: Partial<Entry> = {}): Entry {
  seq += 1;
  return { seq, id: `e${seq}`, type: "message", created_at: "", parent_id: null, role, parts, ...fields };
}
const call = (id: string): Part => ({ type: "tool_call", call_id: id, name: "f", arguments: {} });
const result = (id: string, text: string, interrupted = false): Part => ({
  type: "tool_result",
  call_id: id,
  parts: [{ type: "text", text }],
  interrupted,
});
const answers = (path: Entry[]) =>
  toBlocks(path).flatMap(({ calls }) => calls.map((own) => own.result?.parts?.[0]?.text ?? null));

test("each result stands with its call, in call order", () => {
  const path = [
    message("assistant", [call("1"), call("2"), call("3")]),
    message("tool", [result("2", "two")]),
    message("tool", [result("1", "one")]),
  ];
  expect(answers(path)).toEqual(["one", "two", null]);
  expect(toBlocks(path)).toHaveLength(1);
});

test("ids that are used again belong to the nearest call without a result", () => {
  const path = [
    message("assistant", [call("1")]),
    message("tool", [result("1", "first")]),
    message("assistant", [call("1"), call("1")]),
    message("tool", [result("1", "second")]),
    message("tool", [result("1", "third")]),
  ];
  expect(answers(path)).toEqual(["first", "second", "third"]);
});

test("a real result wins over an interrupted one, whichever came first", () => {
  const asked = message("assistant", [call("1")]);
  const cut = message("tool", [result("1", "cut", true)]);
  const real = message("tool", [result("1", "real")]);
  expect(answers([asked, cut, real])).toEqual(["real"]);
  expect(answers([asked, real, cut])).toEqual(["real"]);
});

test("a result whose call is not loaded is shown by itself", () => {
  const blocks = toBlocks([message("tool", [result("9", "late")])]);
  expect(blocks.map(({ orphans }) => orphans.length)).toEqual([1]);
});

test("an elided result without a call id goes to the first open call", () => {
  const path = [
    message("assistant", [call("1")]),
    message("tool", [{ type: "tool_result", elided: true, bytes: 70_000, href: "/v1/x" }]),
  ];
  expect(toBlocks(path)[0]?.calls[0]?.result?.bytes).toBe(70_000);
});

test("meta messages are hidden, entries of unknown types are not", () => {
  const unknown: Entry = { seq: 99, id: "n", type: "novelty", created_at: "", parent_id: null };
  const shown = toBlocks([message("user", [{ type: "text", text: "x" }], { meta: true }), unknown]);
  expect(shown.map(({ entry }) => entry.type)).toEqual(["novelty"]);
});

test("an output in the making goes to its call, or to the only open one, never to a guess", () => {
  const output = (messageId: string, callId: string | null): LiveMessage => ({
    messageId,
    turnId: "t",
    callId,
    parts: [{ kind: "output", text: messageId, length: 1, waiting: [] }],
  });
  const one = toBlocks([message("assistant", [call("1"), call("2")]), message("tool", [result("1", "x")])]);
  expect([...liveOutputs(one, [output("m", null)])].map(([id]) => id)).toEqual(["2"]);
  const two = toBlocks([message("assistant", [call("1"), call("2")])]);
  expect(liveOutputs(two, [output("m", null)]).size).toBe(0);
  expect(liveOutputs(two, [output("m", "2")]).get("2")?.messageId).toBe("m");
});
