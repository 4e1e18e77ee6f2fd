import { expect, test } from "vitest";
import type { Outline } from "../net/wire";
import { type Line, toLines } from "./tree";

let seq = 0;
const said = (id: string, parentId: string | null, role = "user"): Outline => ({
  seq: ++seq,
  id,
  parent_id: parentId,
  type: "message",
  role,
  created_at: "",
  text: id,
});

const draw = (lines: readonly Line[]): unknown =>
  lines.map(({ stops }) => stops.map(({ outline, branches }) => (branches.length ? [outline.id, draw(branches)] : outline.id)));

test("the branch of the leaf goes on in the line, the others stand beside it", () => {
  const tree = [said("a", null), said("b", "a"), said("c", "b"), said("x", "a"), said("y", "x"), said("z", "a")];
  expect(draw(toLines(tree, "y"))).toEqual([[["a", [["b", "c"], ["z"]]], "x", "y"]]);
  expect(draw(toLines(tree, "c"))).toEqual([[["a", [["x", "y"], ["z"]]], "b", "c"]]);
});

test("what an assistant did in a turn is counted and not drawn, but for the leaf and a fork", () => {
  const tree = [said("a", null), said("b", "a", "assistant"), said("c", "b", "tool"), said("d", "c", "assistant")];
  const [line] = toLines(tree, "d");
  expect(line?.stops.map(({ outline, following, isLeaf }) => [outline.id, following, isLeaf])).toEqual([
    ["a", 2, false],
    ["d", 0, true],
  ]);
});

test("a tree that is as deep as it is long is drawn without recursion", () => {
  const tree = [said("0", null)];
  for (let n = 1; n < 20_000; n++) tree.push(said(String(n), String(n - 1)));
  expect(toLines(tree, "19999")[0]?.stops).toHaveLength(20_000);
});
