/** The page's state as signals, and the verbs that change it. Holds cursors, and nothing of worth. */
import { signal } from "@preact/signals";
import * as api from "./api";
import { Problem } from "./api";
import { parseJson } from "./json";
import { emptyListing, type Listing, takeFirstPage, takeListingStatus, takeNextPage } from "./listing";
import { type Action, openSession, reduce, type SessionState } from "./session";
import type { SseEvent } from "./sse";
import { type Connection, Stream } from "./stream";
import type { Delta, Entry, Look } from "./wire";

const PAGE = 40;

export const listing = signal<Listing>(emptyListing);
export const sessionId = signal<string | null>(null);
export const session = signal<SessionState | null>(null);
/** Why the selected session cannot be shown. */
export const sessionProblem = signal<string | null>(null);
/** The loop that answers in sessions that chose none, once it is known. */
export const defaultLoop = signal<string | null>(null);
export const connection = signal<Connection>("connecting");
export const isUnauthorised = signal(false);
/** The last thing that went wrong, or was done, in words. */
export const notice = signal<{ text: string; isError: boolean } | null>(null);

/** Counts what was sent from here: the transcript then goes to its end. */
export const sent = signal(0);

let stream: Stream | null = null;
/** Events that are not folded yet: many deltas make one drawing. */
let waiting: SseEvent[] = [];
let flushing: ReturnType<typeof setTimeout> | undefined;
/** The selected session is not there; it is opened when it comes. */
let isAbsent = false;
/** Counts openings: what an earlier one still fetches is not for the session shown now. */
let opening = 0;

const idOfHash = (): string | null => {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null;
  }
};

export const hrefOf = (id: string): string => `#${encodeURIComponent(id)}`;

export function start(): void {
  window.addEventListener("hashchange", () => void select(idOfHash()));
  void select(idOfHash());
  api.readHealth().then(
    (health) => {
      defaultLoop.value = health.loop;
    },
    () => undefined, // the connection's state is shown; this is only a hint
  );
}

/** Runs a verb for the user; what goes wrong is said, and false returned. */
export async function attempt(verb: () => Promise<unknown>): Promise<boolean> {
  try {
    await verb();
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}

export function report(error: unknown): void {
  if (error instanceof Problem && error.status === 401) isUnauthorised.value = true;
  else say(error instanceof Error ? error.message : String(error), true);
}

export function say(text: string, isError = false): void {
  notice.value = { text, isError };
}

async function select(id: string | null): Promise<void> {
  if (id === sessionId.value && stream !== null) return;
  sessionId.value = id;
  await reopen();
}

/** Looks, fetches the newest page, then streams after the look's cursor: in this order no hole. */
async function reopen(): Promise<void> {
  const mine = ++opening;
  const id = sessionId.value;
  closeStream();
  if (session.value?.sessionId !== id) session.value = null;
  sessionProblem.value = null;
  isAbsent = false;
  if (id !== null) {
    const opened = await openPatiently(id, mine);
    if (mine !== opening) return;
    session.value = opened;
  }
  connect(mine);
}

function closeStream(): void {
  stream?.close();
  stream = null;
  waiting = [];
}

async function openPatiently(id: string, mine: number): Promise<SessionState | null> {
  for (let delayMs = 250; mine === opening; delayMs = Math.min(delayMs * 2, 4_000)) {
    try {
      const look = await api.lookAt(id);
      return openSession(look, await api.readTranscript(id, null, PAGE));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (!error.isUnreached) {
        if (error.status === 401) isUnauthorised.value = true;
        if (mine === opening) {
          sessionProblem.value = error.message;
          isAbsent = error.code === "session_not_found" || error.code === "session_deleted";
        }
        return null;
      }
      connection.value = "lost";
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
  return null;
}

function connect(mine: number): void {
  if (mine !== opening) return;
  stream = new Stream({
    url: () => {
      flush();
      const shown = session.value;
      const parameters: [string, string][] = [["listing", "1"]];
      if (shown !== null && shown.status !== "deleted") parameters.push(["session", shown.sessionId], ["after", shown.cursor]);
      return api.streamUrl(parameters);
    },
    onEvents: (events) => {
      if (mine === opening) take(events);
    },
    onConnection: (state) => {
      if (mine !== opening) return;
      connection.value = state;
      if (state !== "live") return;
      void refreshListing();
    },
    onRefused: (problem) => onRefused(problem),
  });
}

function onRefused(problem: Problem): boolean {
  if (problem.status === 401) {
    isUnauthorised.value = true;
    return false;
  }
  if (problem.status === 404 && session.value !== null) {
    dispatch({ type: "status", look: { session_id: session.value.sessionId, status: "deleted" } });
    return true;
  }
  report(problem);
  return true;
}

function take(events: readonly SseEvent[]): void {
  waiting.push(...events);
  flushing ??= setTimeout(flush, drawingMs());
}

/** A long message in the making is drawn less often. */
function drawingMs(): number {
  const parts = session.value?.live.flatMap((message) => message.parts) ?? [];
  return Math.min(20 + parts.reduce((sum, part) => sum + (part?.length ?? 0), 0) / 200, 400);
}

function flush(): void {
  clearTimeout(flushing);
  flushing = undefined;
  const events = waiting;
  waiting = [];
  if (events.length > 0) fold(events);
}

function fold(events: readonly SseEvent[]): void {
  let state = session.value;
  const before = state?.status;
  let list = listing.value;
  let isVoid = false;
  for (const { event, data, id } of events) {
    const body = parseJson<{ session_id: string }>(data);
    const isShown = state !== null && body.session_id === state.sessionId;
    if (event === "status") {
      list = takeListingStatus(list, body as Look);
      isVoid ||= hasCome(state, body as Look);
      if (isShown && state) state = reduce(state, { type: "status", look: body as Look });
    } else if (event === "void") {
      isVoid ||= isShown;
    } else if (isShown && state) {
      if (event === "entry") {
        state = reduce(state, { type: "entry", entry: body as unknown as Entry, cursor: id });
      } else if (event === "delta" || event === "partial") {
        state = reduce(state, { type: event, delta: body as unknown as Delta });
      }
    }
  }
  listing.value = list;
  session.value = state;
  if (isVoid) void reopen();
  else if (state?.hasGap) reopenSoon();
  else if (state?.status === "deleted" && before !== "deleted") stream?.reconnect();
  else if (state?.isStale) void refetch();
}

/** Whether the selected session, which was not there or was deleted, is there now. */
function hasCome(state: SessionState | null, look: Look): boolean {
  if (look.session_id !== sessionId.value || look.status === "deleted") return false;
  return state === null ? isAbsent : state.status === "deleted";
}

function reopenSoon(): void {
  const mine = opening;
  closeStream();
  setTimeout(() => mine === opening && void reopen(), 500);
}

function dispatch(action: Action): void {
  if (session.value !== null) session.value = reduce(session.value, action);
}

async function refetch(): Promise<void> {
  const mine = opening;
  const shown = session.value;
  if (shown === null || shown.meanwhile !== null) return;
  dispatch({ type: "refetching" });
  try {
    const page = await api.readTranscript(shown.sessionId, null, PAGE);
    if (mine === opening) dispatch({ type: "refetched", page });
  } catch (error) {
    if (mine !== opening) return;
    dispatch({ type: "refetch_failed" });
    if (!(error instanceof Problem && error.isUnreached)) report(error);
    setTimeout(() => mine === opening && session.value?.isStale && void refetch(), 1_000);
    return;
  }
  if (mine === opening && session.value?.isStale) void refetch();
}

let loadingOlder: string | null = null;

/** Loads the page before the first entry shown; one at a time. */
export async function loadOlder(): Promise<void> {
  const shown = session.value;
  const before = shown?.path[0]?.id;
  if (!shown?.hasMore || before === undefined || loadingOlder === before) return;
  loadingOlder = before;
  await attempt(async () => {
    const page = await api.readTranscript(shown.sessionId, before, PAGE);
    if (session.value?.sessionId === shown.sessionId) dispatch({ type: "older", before, page });
  });
  loadingOlder = null;
}

async function refreshListing(): Promise<void> {
  await attempt(async () => {
    const page = await api.listSessions(null);
    listing.value = takeFirstPage(listing.value, page);
    if (page.sessions.some((look) => hasCome(session.value, look))) void reopen();
  });
}

export async function loadMoreSessions(): Promise<void> {
  const { next } = listing.value;
  if (next === null) return;
  await attempt(async () => {
    const page = await api.listSessions(next);
    if (listing.value.next === next) listing.value = takeNextPage(listing.value, page);
  });
}

export async function newSession(id?: string): Promise<void> {
  await attempt(async () => {
    const look = await api.createSession(id);
    listing.value = takeListingStatus(listing.value, look);
    location.hash = hrefOf(look.session_id);
  });
}
