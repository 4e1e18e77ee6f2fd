import { expect, test } from "vitest";
import type { Entry, TranscriptPage } from "../net/wire";
import { addNewer, addOlder, cutAfter, extend, MOST_ENTRIES, openMiddle, openPath, type Path } from "./path";

const entry = (n: number, parent: string | null = n === 0 ? null : String(n - 1)): Entry => ({
  seq: n + 1,
  id: String(n),
  type: "message",
  created_at: "",
  parent_id: parent,
});
const range = (from: number, to: number): Entry[] => Array.from({ length: to - from }, (_, n) => entry(from + n));
const page = (from: number, to: number, hasMore: boolean, leaf = "999"): TranscriptPage => ({
  entries: range(from, to),
  has_more: hasMore,
  leaf_id: leaf,
});
const ids = (path: Path): string[] => path.entries.map(({ id }) => id);

test("a window never grows past its bound, at whichever end it grows", () => {
  let path = openPath(page(960, 1000, true));
  for (let first = 960; first > 0; first -= 60) path = addOlder(path, String(first), page(first - 60, first, first > 60));
  expect([path.entries.length, path.hasOlder, path.hasNewer]).toEqual([MOST_ENTRIES, false, true]);
  expect(ids(path)[0]).toBe("0");
  for (let last = MOST_ENTRIES; last < 1000; last += 50) path = addNewer(path, String(last - 1), page(last, last + 50, last < 950));
  expect(path.entries.length).toBeLessThan(MOST_ENTRIES + 50);
  expect([ids(path).at(-1), path.hasOlder, path.hasNewer]).toEqual(["999", true, false]);
});

test("a page that is not beside the window is not taken", () => {
  const path = openPath(page(10, 20, true, "19"));
  expect(addOlder(path, "12", page(2, 12, true))).toBe(path);
  expect(addNewer(path, "12", page(13, 20, true))).toBe(path);
});

test("a window in the middle learns of the leaf, and shows nothing that is not beside it", () => {
  const path = openMiddle(page(10, 20, true), page(20, 30, true, "40"));
  const extended = extend(path, { ...entry(41, "40") }) as Path;
  expect([ids(extended), extended.leafId, extended.hasNewer]).toEqual([ids(path), "41", true]);
  const cut = cutAfter(extended, "15", 50) as Path;
  expect([ids(cut).at(-1), cut.hasNewer]).toEqual(["15", false]);
});

test("branches are known as soon as they begin", () => {
  const path = openPath(page(0, 3, false, "2"));
  const moved = cutAfter(path, "0", 4) as Path;
  const grown = extend(moved, { ...entry(9, "0") }) as Path;
  expect(grown.entries.at(-1)?.siblings).toEqual(["1", "9"]);
});
