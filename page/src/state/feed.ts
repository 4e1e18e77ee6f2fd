/** The stream's events, folded into what is shown: at most once a frame, however many come. */
import { signal } from "@preact/signals";
import { type Feed, openFeed } from "../net/feed";
import type { FeedEvent, FromHub } from "../net/hub";
import { Problem } from "../net/problem";
import type { Connection } from "../net/stream";
import { isSignedOut, report } from "./notice";

export const connection = signal<Connection>("connecting");

export interface Listener {
  /** The session that it shows and the cursor that it stands at. */
  shown(): readonly [string, string] | null;
  onEvents(events: readonly FeedEvent[]): void;
  onLive(): void;
  onRefused(problem: Problem): void;
  /** How long a fold may wait: what is dear to draw is drawn less often. */
  drawingMs(): number;
}

const listeners: Listener[] = [];
let feed: Feed | null = null;
let waiting: FeedEvent[] = [];
let isScheduled = false;

/** A tab that is hidden draws nothing, but stays with what comes. */
const HIDDEN_MS = 400;

export function listen(listener: Listener): void {
  listeners.push(listener);
}

export function startFeed(): void {
  feed = openFeed({ onMessage, shown: shownNow });
}

/** Streams what is shown now. */
export function restream(): void {
  flush();
  feed?.want(shownNow());
}

export function wakeFeed(): void {
  feed?.wake();
}

function shownNow(): (readonly [string, string])[] {
  return listeners.map((listener) => listener.shown()).filter((shown) => shown !== null);
}

function onMessage(message: FromHub): void {
  switch (message.type) {
    case "welcome":
      return;
    case "connection":
      connection.value = message.connection;
      if (message.connection !== "live") return;
      isSignedOut.value = false;
      for (const listener of listeners) listener.onLive();
      return;
    case "events":
      waiting.push(...message.events);
      schedule();
      return;
    case "refused": {
      const problem = new Problem(message.status, message.code, message.detail, message.sessionId);
      if (problem.status === 401) isSignedOut.value = true;
      else if (problem.sessionId === null) report(problem);
      else for (const listener of listeners) listener.onRefused(problem);
    }
  }
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  if (document.visibilityState === "hidden") {
    setTimeout(flush, HIDDEN_MS);
    return;
  }
  const delayMs = Math.max(...listeners.map((listener) => listener.drawingMs()), 0);
  const draw = (): void => {
    // A tab that is hidden before its frame comes would wait for it until it is shown.
    const late = setTimeout(flush, HIDDEN_MS);
    requestAnimationFrame(() => {
      clearTimeout(late);
      flush();
    });
  };
  if (delayMs > 0) setTimeout(draw, delayMs);
  else draw();
}

function flush(): void {
  isScheduled = false;
  const events = waiting;
  waiting = [];
  if (events.length > 0) for (const listener of listeners) listener.onEvents(events);
}
