/**
 * What a person reads stays where it is, whatever is put above it, taken away or grows.
 *
 * The row at the top of the view is the anchor: its place is noted at every scrolling and restored
 * after every change. At the end of the content the view follows what comes.
 */
import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Nearer to the end than this, the view follows what comes. */
const FOLLOW_PX = 48;
/** Nearer to an end than this, the page beyond it is loaded. */
const LOAD_PX = 900;

interface Anchor {
  row: string;
  top: number;
}

export interface Scrolling {
  frame: RefObject<HTMLDivElement | null>;
  isAtEnd: boolean;
  /** What is at the end is shown, and followed. */
  toEnd(): void;
  /** Shows a row in the middle; false if it is not there. */
  toRow(row: string): boolean;
  /** Stays where it is though it is at the end: somebody wants to read this. */
  stay(): void;
  onScroll(): void;
}

interface ScrollingOptions {
  hasOlder: boolean;
  hasNewer: boolean;
  loadOlder(): void;
  loadNewer(): void;
  /** Whether it begins at its end. */
  startsAtEnd?: boolean;
}

export function useScrolling(options: ScrollingOptions): Scrolling {
  const frame = useRef<HTMLDivElement>(null);
  const anchor = useRef<Anchor | null>(null);
  const isFollowing = useRef(options.startsAtEnd ?? true);
  const [isAtEnd, setAtEnd] = useState(true);
  const now = useRef(options);
  now.current = options;

  const note = (): void => {
    const view = frame.current;
    if (view === null) return;
    const below = view.scrollHeight - view.scrollTop - view.clientHeight;
    const isEnd = below < FOLLOW_PX && !now.current.hasNewer;
    isFollowing.current = isEnd;
    setAtEnd(isEnd);
    anchor.current = findAnchor(view);
  };

  const load = (): void => {
    const view = frame.current;
    if (view === null || view.clientHeight === 0) return;
    const { hasOlder, hasNewer, loadOlder, loadNewer } = now.current;
    if (view.scrollTop < LOAD_PX && hasOlder) loadOlder();
    else if (hasNewer && view.scrollHeight - view.scrollTop - view.clientHeight < LOAD_PX) loadNewer();
  };

  const settle = (): void => {
    const view = frame.current;
    if (view === null) return;
    if (isFollowing.current) view.scrollTop = view.scrollHeight;
    else if (anchor.current !== null) {
      const row = rowOf(view, anchor.current.row);
      const moved = row === null ? 0 : topOf(view, row) - anchor.current.top;
      if (Math.abs(moved) > 0.5) view.scrollTop += moved;
      else if (row === null) anchor.current = findAnchor(view);
    }
    load();
  };

  useLayoutEffect(settle);
  useLayoutEffect(() => {
    const view = frame.current;
    if (view === null) return undefined;
    const observer = new ResizeObserver(settle);
    observer.observe(view);
    for (const content of view.children) observer.observe(content);
    return () => observer.disconnect();
  }, []);

  return {
    frame,
    isAtEnd,
    toEnd: () => {
      isFollowing.current = true;
      settle();
      setAtEnd(true);
    },
    toRow: (id) => {
      const view = frame.current;
      const row = view && rowOf(view, id);
      if (!view || !row) return false;
      isFollowing.current = false;
      view.scrollTop += topOf(view, row) - Math.min(view.clientHeight * 0.25, 140);
      anchor.current = findAnchor(view);
      return true;
    },
    stay: () => {
      isFollowing.current = false;
      if (frame.current !== null) anchor.current = findAnchor(frame.current);
    },
    onScroll: () => {
      note();
      load();
    },
  };
}

function rowOf(view: HTMLElement, id: string): HTMLElement | null {
  return view.querySelector<HTMLElement>(`[data-row="${CSS.escape(id)}"]`);
}

function topOf(view: HTMLElement, row: HTMLElement): number {
  return row.getBoundingClientRect().top - view.getBoundingClientRect().top;
}

/** The first row that is to be seen. */
function findAnchor(view: HTMLElement): Anchor | null {
  const rows = view.querySelectorAll<HTMLElement>("[data-row]");
  const edge = view.getBoundingClientRect().top;
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle] as HTMLElement).getBoundingClientRect().bottom > edge + 1) high = middle;
    else low = middle + 1;
  }
  const row = rows[low];
  return row === undefined ? null : { row: row.dataset.row ?? "", top: row.getBoundingClientRect().top - edge };
}
