import { expect, test } from "vitest";
import { aftermathOf, isCutOff } from "./aftermath";
import { toBlocks } from "./blocks";
import type { Entry, Part } from "../net/wire";

const call: Part = { type: "tool_call", call_id: "c", name: "run", arguments: {} };
const cut: Part = { type: "tool_result", call_id: "c", parts: [{ type: "text", text: "half" }], interrupted: true };
const entry = (seq: number, type: string, fields: Partial<Entry> = {}): Entry => ({
  seq,
  id: `e${seq}`,
  type,
  created_at: "",
  ...fields,
});
const said = (seq: number, role: Entry["role"], part: Part): Entry =>
  entry(seq, "message", { parent_id: null, role, parts: [part] });

const [block] = toBlocks([said(3, "assistant", call), said(6, "tool", cut)]);
if (block === undefined) throw new Error("there is one block");

const lost = entry(5, "runtime_lost", { runtime_id: "far/1", cause: "silence" });
const ended = entry(7, "turn_ended", { reason: "interrupted" });
const late = (seq: number, id = "c"): Entry => entry(seq, "late_result", { call_id: id, parts: [] });

test("a runtime's loss, the turn's end and a late result are told, each once", () => {
  const facts = [ended, late(9), lost, ended, late(9), late(8, "another")];
  expect(aftermathOf(facts, block)).toEqual({ lost: [lost], ended, late: [late(9)] });
});

test("what was before it, and what other turns met, is not its own", () => {
  const facts = [
    entry(2, "runtime_lost"),
    entry(1, "turn_ended", { reason: "failed" }),
    ended,
    entry(10, "tool_dispatched", { call_id: "c" }),
    entry(11, "runtime_lost"),
    late(12),
    entry(13, "turn_ended", { reason: "interrupted" }),
  ];
  expect(aftermathOf(facts, block)).toEqual({ lost: [], ended, late: [] });
});

test("only what was cut off has an aftermath", () => {
  const done: Part = { ...cut, interrupted: false };
  const blocks = toBlocks([said(1, "assistant", call), said(2, "tool", done), entry(3, "message", { parent_id: null, role: "assistant", parts: [], end: "interrupted" })]);
  expect(blocks.map(isCutOff)).toEqual([false, true]);
  expect(isCutOff(block)).toBe(true);
});
