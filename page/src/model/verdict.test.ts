import { expect, test } from "vitest";
import { verdictOf } from "./verdict";
import type { Entry } from "../net/wire";

const fact = (type: string, fields: Partial<Entry>): Entry => ({ seq: 1, id: "f", type, created_at: "", ...fields });
const hook = (fields: Partial<Entry>): Entry =>
  fact("hook_ran", { event: "PreToolUse", exit: 0, input: { tool_use_id: "c" }, ...fields });
const answers = (answer: object): Partial<Entry> => ({ output: { stdout: JSON.stringify({ hookSpecificOutput: answer }) } });

test("a call that nobody was asked about ran as it was asked for", () => {
  const others = [hook({ output: { stdout: "not JSON" } }), hook({}), fact("tool_dispatched", { call_id: "c" })];
  expect(verdictOf(others, "c", { sum: 5 })).toEqual({ ranWith: null, decisions: [] });
});

test("the input of an answer is what ran, and its reason is kept; other calls have their own", () => {
  const asked = fact("approval_requested", { call_id: "c", arguments: { sum: 5 } });
  const given = fact("approval_answered", { call_id: "c", approve: true, arguments: { sum: 4 }, reason: "less" });
  const other = fact("approval_answered", { call_id: "d", approve: true, arguments: { sum: 9 } });
  expect(verdictOf([asked, other, given], "c", { sum: 5 })).toEqual({ ranWith: { input: { sum: 4 } }, decisions: [given] });
});

test("a hook's input is what ran, unless somebody gave another", () => {
  const changed = hook(answers({ updatedInput: { sum: 3 } }));
  expect(verdictOf([changed], "c", { sum: 5 }).ranWith).toEqual({ input: { sum: 3 } });
  const asked = fact("approval_requested", { call_id: "c", arguments: { sum: 3 } });
  const yes = fact("approval_answered", { call_id: "c", approve: true });
  expect(verdictOf([changed, asked, yes], "c", { sum: 5 })).toEqual({ ranWith: { input: { sum: 3 } }, decisions: [yes] });
});

test("who refused is told; what was refused ran with nothing else", () => {
  const no = fact("approval_answered", { call_id: "c", approve: false, arguments: { sum: 1 } });
  const byExit = hook({ exit: 2, ...answers({ updatedInput: { sum: 2 } }) });
  const byAnswer = hook(answers({ permissionDecision: "deny" }));
  expect(verdictOf([byExit, byAnswer, no], "c", { sum: 5 })).toEqual({ ranWith: null, decisions: [byExit, byAnswer, no] });
});

test("of an input too long to be here only what was put in its place is told", () => {
  const asked = fact("approval_requested", { call_id: "c", arguments: { elided: true, bytes: 70_000, href: "/x" } });
  const yes = fact("approval_answered", { call_id: "c", approve: true });
  expect(verdictOf([asked, yes], "c", undefined).ranWith).toBe(null);
  const other = fact("approval_answered", { call_id: "c", approve: true, arguments: {} });
  expect(verdictOf([asked, other], "c", undefined).ranWith).toEqual({ input: {} });
});
