/**
 * A part of one path of the tree, as it is loaded: a window that slides, and never grows past a bound.
 *
 * What is left out lies before it (`hasOlder`) or after it (`hasNewer`). An entry that comes extends
 * a window that stands at the leaf; one that stands elsewhere only learns that there is more. Pure.
 */
import type { Entry, TranscriptPage } from "../net/wire";

export interface Path {
  /** Root side first. */
  entries: readonly Entry[];
  leafId: string | null;
  hasOlder: boolean;
  hasNewer: boolean;
  /** The highest `seq` that a page or the stream brought: what is older is known already. */
  seq: number;
  /** The children that are known of each parent (of the root: ""), so that branches are seen at once. */
  kin: ReadonlyMap<string, readonly string[]>;
}

/** The most entries in the page: beyond it the far end is let go, and is loaded again on the way back. */
export const MOST_ENTRIES = 300;

const keyOf = (entry: Entry): string => entry.parent_id ?? "";
const newest = (entries: readonly Entry[]): number => entries.reduce((seq, entry) => Math.max(seq, entry.seq), 0);

export function openPath(page: TranscriptPage): Path {
  return {
    entries: page.entries,
    leafId: page.leaf_id,
    hasOlder: page.has_more,
    hasNewer: false,
    seq: newest(page.entries),
    kin: learn(new Map(), page.entries),
  };
}

/** A window in the middle: a page that ends in an entry, and one that begins after it. */
export function openMiddle(older: TranscriptPage, newer: TranscriptPage): Path {
  const entries = [...older.entries, ...newer.entries];
  return { ...openPath({ ...older, entries, leaf_id: newer.leaf_id }), hasNewer: newer.has_more };
}

export function addOlder(path: Path, before: string, page: TranscriptPage): Path {
  if (path.entries[0]?.id !== before) return path;
  const known = new Set(path.entries.map(({ id }) => id));
  const older = page.entries.filter(({ id }) => !known.has(id));
  const entries = [...older, ...path.entries];
  const isTooMany = entries.length > MOST_ENTRIES;
  return {
    ...path,
    entries: isTooMany ? entries.slice(0, MOST_ENTRIES) : entries,
    hasOlder: page.has_more && older.length > 0,
    hasNewer: path.hasNewer || isTooMany,
    kin: learn(path.kin, older),
  };
}

export function addNewer(path: Path, after: string, page: TranscriptPage): Path {
  if ((path.entries.at(-1)?.id ?? "") !== after) return path;
  return bound({
    ...path,
    entries: [...path.entries, ...page.entries],
    hasNewer: page.has_more,
    seq: Math.max(path.seq, newest(page.entries)),
    kin: learn(path.kin, page.entries),
  });
}

/** The path with an entry of the stream; unchanged if it is known, "unknown" if its place is not. */
export function extend(path: Path, entry: Entry): Path | "unknown" {
  if (path.entries.some(({ id }) => id === entry.id)) return path;
  // A hidden leaf is not on the path; it is where the path ends all the same.
  if (entry.id === path.leafId && entry.meta) return path;
  // A page that was fetched later than this entry was stored knows better.
  if (entry.seq <= path.seq) return path;
  const kin = learn(path.kin, [entry]);
  const known = { ...path, seq: entry.seq, kin, leafId: entry.id };
  const placed = { ...entry, siblings: kin.get(keyOf(entry)) ?? [entry.id] };
  if (entry.parent_id === path.leafId) {
    return path.hasNewer ? known : bound({ ...known, entries: [...path.entries, placed] });
  }
  const parent = path.entries.findLastIndex(({ id }) => id === entry.parent_id);
  if (parent < 0 && entry.parent_id !== null) return path.hasNewer ? known : "unknown";
  const entries = [...path.entries.slice(0, parent + 1), placed];
  return { ...known, entries, hasOlder: parent >= 0 && path.hasOlder, hasNewer: false };
}

/** The path after the leaf was moved to an entry of it; "unknown" if it is not loaded. */
export function cutAfter(path: Path, leafId: string | null, seq: number): Path | "unknown" {
  if (seq <= path.seq || leafId === path.leafId) return path;
  const moved = { ...path, seq, leafId };
  if (leafId === null) return { ...moved, entries: [], hasOlder: false, hasNewer: false };
  const index = path.entries.findLastIndex(({ id }) => id === leafId);
  if (index >= 0) return { ...moved, entries: path.entries.slice(0, index + 1), hasNewer: false };
  return path.hasNewer ? moved : "unknown";
}

function bound(path: Path): Path {
  const extra = path.entries.length - MOST_ENTRIES;
  // Cut in steps: a row that goes at the top for each that comes would cost more than it frees.
  if (extra < 50) return path;
  const entries = path.entries.slice(extra);
  return { ...path, entries, hasOlder: true, kin: learn(new Map(), entries) };
}

function learn(kin: Path["kin"], entries: readonly Entry[]): Path["kin"] {
  if (entries.length === 0) return kin;
  const learned = new Map(kin);
  for (const entry of entries) {
    const key = keyOf(entry);
    const known = learned.get(key) ?? [];
    const added = (entry.siblings ?? [entry.id]).filter((id) => !known.includes(id));
    if (added.length > 0) learned.set(key, [...known, ...added]);
  }
  return learned;
}
