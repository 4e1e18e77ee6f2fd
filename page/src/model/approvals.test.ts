import { expect, test } from "vitest";
import type { ApprovalLook, Entry } from "../net/wire";
import { approvalsElsewhere, approvalsOf, followApprovals, NO_APPROVALS } from "./approvals";

const fact = (type: string, fields: Partial<Entry>): Entry => ({ seq: 1, id: "x", type, created_at: "", ...fields });
const asked = fact("approval_requested", { call_id: "c", name: "pay", arguments: { sum: 5 }, reason: "it costs" });
const look: ApprovalLook = {
  call_id: "c",
  name: "pay",
  arguments: null,
  elided: true,
  reason: null,
  expires_at: null,
  seq: 7,
};

test("a call waits from its question to its answer", () => {
  const waiting = followApprovals(NO_APPROVALS, asked);
  expect(waiting.get("c")).toMatchObject({ name: "pay", input: { sum: 5 }, reason: "it costs", wholeAt: null });
  expect(followApprovals(waiting, fact("approval_answered", { call_id: "other" })).has("c")).toBe(true);
  expect(followApprovals(waiting, fact("approval_answered", { call_id: "c" })).size).toBe(0);
  expect(followApprovals(waiting, fact("turn_ended", {})).size).toBe(0);
  expect(followApprovals(waiting, fact("claimed", {}))).toBe(waiting);
});

test("a look says where an input is whole that does not fit into it", () => {
  expect(approvalsOf([look], NO_APPROVALS).get("c")).toMatchObject({ wholeAt: 7 });
});

test("a look that says nothing new keeps what the facts told, input included", () => {
  const waiting = followApprovals(NO_APPROVALS, asked);
  expect(approvalsOf([look], waiting)).toBe(waiting);
  expect(approvalsOf([], waiting).size).toBe(0);
});

test("what no call that is shown asks for is told apart", () => {
  const again = followApprovals(followApprovals(NO_APPROVALS, asked), { ...asked, call_id: "c#2" });
  expect(approvalsElsewhere(again, ["b", undefined, "c"]).map(({ callId }) => callId)).toEqual(["c#2"]);
  expect(approvalsElsewhere(again, []).length).toBe(2);
});
