/**
 * The tree of a session as a map: what people said, where branches part, and where they end.
 *
 * Chains without a fork are drawn by their turns only. Of the branches that part at an entry the one
 * that leads to the leaf, else the newest, goes on in the same line; the others stand beside it.
 * Pure, and iterative: a tree may be as deep as it is long.
 */
import type { Outline } from "../net/wire";

export interface Stop {
  outline: Outline;
  isOnPath: boolean;
  isLeaf: boolean;
  isTip: boolean;
  /** How many entries of its turn follow it, up to the next stop of this line. */
  following: number;
  /** Whole lines that part after this stop, oldest first. */
  branches: readonly Line[];
}

/** Stops that follow each other, without choice. */
export interface Line {
  stops: readonly Stop[];
  entries: number;
}

export function toLines(outlines: readonly Outline[], leafId: string | null): Line[] {
  const byId = new Map(outlines.map((outline) => [outline.id, outline]));
  const children = new Map<string | null, Outline[]>();
  for (const outline of outlines) {
    const parent = outline.parent_id;
    const list = children.get(parent);
    if (list === undefined) children.set(parent, [outline]);
    else list.push(outline);
  }
  const onPath = new Set<string>();
  for (let at = leafId === null ? undefined : byId.get(leafId); at !== undefined && !onPath.has(at.id); ) {
    onPath.add(at.id);
    at = at.parent_id === null ? undefined : byId.get(at.parent_id);
  }

  const lines: Line[] = [];
  const waiting: { root: Outline; into: Line[] }[] = (children.get(null) ?? [])
    .map((root) => ({ root, into: lines }))
    .reverse();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const stops: Stop[] = [];
    const line = { stops, entries: 0 };
    next.into.push(line);
    let last: { following: number } | null = null;
    for (let at: Outline | undefined = next.root; at !== undefined; ) {
      const found: readonly Outline[] = children.get(at.id) ?? [];
      const onward: Outline | undefined = found.find(({ id }) => onPath.has(id)) ?? found.at(-1);
      const isLeaf = at.id === leafId;
      line.entries++;
      if ((at.role === "user" && !at.meta) || at.type !== "message" || found.length !== 1 || isLeaf || stops.length === 0) {
        const branches: Line[] = [];
        for (const other of found.toReversed()) if (other !== onward) waiting.push({ root: other, into: branches });
        const stop = { outline: at, isOnPath: onPath.has(at.id), isLeaf, isTip: found.length === 0, following: 0, branches };
        stops.push(stop);
        last = stop;
      } else if (last !== null) last.following++;
      at = onward;
    }
  }
  return lines;
}
