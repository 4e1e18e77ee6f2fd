/** What is around the sessions: looked at, and again when the stream says that it changed. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { parseJson } from "../net/json";
import { Problem } from "../net/problem";
import { listen } from "./feed";
import { isSignedOut, report } from "./notice";

/** Of loops no change is told: they are looked at again when the connection is made anew. */
export type Kind = "routine" | "runtime" | "workflow" | "loop";

interface Watcher {
  kind: Kind;
  /** The one that it shows; null is all of them. */
  id: string | null;
  look(): void;
}

const watchers = new Set<Watcher>();

listen({
  shown: () => null,
  drawingMs: () => 0,
  onRefused: () => undefined,
  onLive: () => {
    for (const watcher of watchers) watcher.look();
  },
  onEvents: (events) => {
    for (const { event, data } of events) {
      if (event !== "changed") continue;
      const { kind, id } = parseJson<{ kind: string; id: string }>(data);
      for (const watcher of watchers) {
        if (watcher.kind === kind && (watcher.id === null || watcher.id === id)) watcher.look();
      }
    }
  },
});

export interface Around<T> {
  /** Null until it was looked at first. */
  found: T | null;
  /** Why there is nothing to be shown. */
  problem: Problem | null;
  look(): void;
}

const GATHER_MS = 150;

/** What `read` finds, kept true; another `key` is another thing. */
export function useAround<T>(kind: Kind, id: string | null, key: string, read: () => Promise<T>): Around<T> {
  const [state, setState] = useState<{ key: string; found: T | null; problem: Problem | null }>({ key, found: null, problem: null });
  const reader = useRef(read);
  reader.current = read;
  const looker = useRef<() => void>(() => undefined);

  useEffect(() => {
    let isOver = false;
    let isBusy = false;
    let isStale = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const now = async (): Promise<void> => {
      if (isBusy) {
        isStale = true;
        return;
      }
      isBusy = true;
      isStale = false;
      try {
        const found = await reader.current();
        if (!isOver) setState({ key, found, problem: null });
      } catch (error) {
        if (!isOver) fail(error);
      }
      isBusy = false;
      if (isStale && !isOver) void now();
    };
    const fail = (error: unknown): void => {
      if (!(error instanceof Problem)) report(error);
      else if (error.status === 401) isSignedOut.value = true;
      else if (!error.isUnreached) setState({ key, found: null, problem: error });
      else timer = setTimeout(() => void now(), 2_000);
    };
    const watcher: Watcher = {
      kind,
      id,
      look: () => {
        clearTimeout(timer);
        timer = setTimeout(() => void now(), GATHER_MS);
      },
    };
    looker.current = () => void now();
    watchers.add(watcher);
    void now();
    return () => {
      isOver = true;
      clearTimeout(timer);
      watchers.delete(watcher);
    };
  }, [kind, id, key]);

  const isThis = state.key === key;
  return { found: isThis ? state.found : null, problem: isThis ? state.problem : null, look: () => looker.current() };
}

/** The time, as far as "in 3 minutes" needs it. */
export const now = signal(Date.now());

const TICK_MS = 10_000;
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, TICK_MS);
document.addEventListener("visibilitychange", () => {
  now.value = Date.now();
});
