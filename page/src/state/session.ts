/** The session that is shown: opened, streamed, and opened anew where its cursor is no longer good. */
import { effect, signal } from "@preact/signals";
import { openMiddle } from "../model/path";
import { type Action, openSession, reduce, type SessionState } from "../model/session";
import * as api from "../net/api";
import type { FeedEvent } from "../net/hub";
import { parseJson } from "../net/json";
import { Problem } from "../net/problem";
import type { Delta, Entry, Look } from "../net/wire";
import { listen, restream } from "./feed";
import { attempt, isSignedOut, report } from "./notice";
import { readBranch, reading } from "./reading";
import { sessionId } from "./route";
import { onLook } from "./sessions";

export const PAGE = 60;
const FIRST_PAGE = 40;

export const session = signal<SessionState | null>(null);
/** Why the selected session cannot be shown. */
export const sessionProblem = signal<Problem | null>(null);
/** The last look at a session that cannot be shown. */
export const problemLook = signal<Look | null>(null);
/** What the loop of the shown session said last of what it is doing; nothing once it goes on. */
export const loopNotice = signal<string | null>(null);
/** The loop that answers where a session chose none. */
export const defaultLoop = signal<string | null>(null);

/** Counts what was sent from here: the transcript then goes to its end. */
export const sent = signal(0);

/** Counts openings: what an earlier one still fetches is not for the session shown now. */
let opening = 0;
/** Not while it is being opened: an old cursor would only bring the same answer again. */
let isStreamed = false;

export function startSession(): void {
  effect(() => {
    void sessionId.value;
    void open();
  });
  api.readHealth().then(
    (health) => {
      defaultLoop.value = health.loop;
    },
    () => undefined, // the connection's state is shown; this is only a hint
  );
}

export function dispatch(action: Action): void {
  if (session.peek() !== null) session.value = reduce(session.peek() as SessionState, action);
}

/** Looks, fetches the newest page, then streams after the look's cursor: in this order no hole. */
export async function open(): Promise<void> {
  const mine = ++opening;
  const id = sessionId.peek();
  if (session.peek()?.sessionId !== id) {
    session.value = null;
    reading.value = null;
    loopNotice.value = null;
  }
  sessionProblem.value = null;
  isStreamed = false;
  restream();
  if (id === null) return;
  const opened = await openPatiently(id, mine);
  if (mine !== opening || opened === null) return;
  session.value = opened;
  isStreamed = opened.status !== "unrecoverable";
  restream();
}

async function openPatiently(id: string, mine: number): Promise<SessionState | null> {
  for (let delayMs = 250; mine === opening; delayMs = Math.min(delayMs * 2, 4_000)) {
    try {
      const look = await api.lookAt(id);
      problemLook.value = look;
      return openSession(look, await api.readTranscript(id, { limit: FIRST_PAGE }));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 401) isSignedOut.value = true;
      else if (!error.isUnreached) {
        if (mine !== opening) return null;
        if (error.isAbsence || error.status === 422) problemLook.value = null;
        session.value = null;
        sessionProblem.value = error;
        return null;
      }
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
  return null;
}

listen({
  shown: () => {
    const shown = session.peek();
    return shown === null || !isStreamed || shown.status === "deleted" ? null : [shown.sessionId, shown.cursor];
  },
  /** A long message in the making is drawn less often. */
  drawingMs: () => {
    const parts = session.peek()?.live.flatMap((message) => message.parts) ?? [];
    const length = parts.reduce((sum, part) => sum + (part?.length ?? 0), 0);
    return length < 20_000 ? 0 : Math.min(length / 500, 400);
  },
  onLive: () => undefined,
  onRefused: (problem) => {
    const shown = session.peek();
    if (problem.sessionId !== shown?.sessionId) return;
    if (problem.isAbsence) dispatch({ type: "status", look: { session_id: shown.sessionId, status: "deleted" } });
    else void open();
  },
  onEvents: fold,
});

function fold(events: readonly FeedEvent[]): void {
  let state = session.peek();
  let isVoid = false;
  let notice = loopNotice.peek();
  for (const { event, data, sessionId: id, cursor } of events) {
    if (id === sessionId.peek()) notice = event === "notice" ? parseJson<{ text: string }>(data).text : null;
    if (event === "status" && id === sessionId.peek()) {
      const look = parseJson<Look>(data);
      isVoid ||= hasCome(look, state);
      if (state !== null) state = reduce(state, { type: "status", look });
      continue;
    }
    if (state === null || id !== state.sessionId) continue;
    if (event === "void") isVoid = true;
    else if (event === "entry") {
      state = reduce(state, { type: "entry", entry: parseJson<Entry & { session_id: string }>(data), cursor });
    } else if (event === "delta" || event === "partial") {
      state = reduce(state, { type: event, delta: parseJson<Delta>(data) });
    }
  }
  session.value = state;
  loopNotice.value = notice;
  if (isVoid) void open();
  else if (state?.hasGap && isStreamed) openSoon();
  else if (state?.isStale) void refetch();
}

/** Whether the selected session, which could not be shown or was deleted, is there now. */
function hasCome(look: Look, shown: SessionState | null): boolean {
  if (look.session_id !== sessionId.peek() || look.status === "deleted") return false;
  if (shown !== null) {
    return shown.status === "deleted" || (shown.status === "unrecoverable" && look.status !== shown.status);
  }
  const problem = sessionProblem.peek();
  return problem !== null && (problem.isAbsence || look.status !== "unrecoverable");
}

onLook((look) => {
  if (hasCome(look, session.peek())) void open();
});

function openSoon(): void {
  const mine = ++opening;
  isStreamed = false;
  restream();
  setTimeout(() => mine === opening && void open(), 500);
}

async function refetch(): Promise<void> {
  const mine = opening;
  const shown = session.peek();
  if (shown === null || shown.meanwhile !== null) return;
  dispatch({ type: "refetching" });
  try {
    const page = await api.readTranscript(shown.sessionId, { limit: FIRST_PAGE });
    if (mine === opening) dispatch({ type: "refetched", page });
  } catch (error) {
    if (mine !== opening) return;
    dispatch({ type: "refetch_failed" });
    if (!(error instanceof Problem && error.isUnreached)) report(error);
    setTimeout(() => mine === opening && session.peek()?.isStale && void refetch(), 1_000);
    return;
  }
  if (mine === opening && session.peek()?.isStale) void refetch();
}

/** Shows the newest end of the active path. */
export async function showNewest(): Promise<void> {
  reading.value = null;
  if (session.peek()?.path.hasNewer) await refetch();
}

/** Shows an entry with what is around it, on the active path or on the branch that has it. */
export async function showEntry(entryId: string): Promise<void> {
  const shown = session.peek();
  if (shown === null) return;
  if (reading.peek() === null && shown.path.entries.some(({ id }) => id === entryId)) return;
  await attempt(async () => {
    const mine = opening;
    const { sessionId: id, path } = shown;
    const older = await api.readTranscript(id, { leaf: entryId, limit: PAGE });
    try {
      const newer = await api.readTranscript(id, { after: entryId, leaf: path.leafId, limit: PAGE });
      if (mine !== opening) return;
      reading.value = null;
      dispatch({ type: "jumped", path: openMiddle(older, newer) });
    } catch (error) {
      if (!(error instanceof Problem && error.code === "entry_not_found")) throw error;
      if (mine === opening) await readBranch(id, entryId, older);
    }
  });
}
