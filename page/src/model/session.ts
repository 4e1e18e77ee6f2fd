/**
 * One session as it is shown: a pure fold of a look, transcript pages and stream events.
 *
 * Everything is decided by `seq` and entry id: an entry counts once, in order, whatever was loaded
 * or streamed twice. A message in the making gives way to the entry of its id. Where the fold cannot
 * know the path (a leaf that was moved to an entry not loaded), it says `isStale` and the caller
 * fetches the transcript again; what comes meanwhile is kept and folded after it.
 */
import { type LiveMessage, placeDelta } from "./live";
import { addNewer, addOlder, cutAfter, extend, openPath, type Path } from "./path";
import { isTelling } from "./aftermath";
import { type Approvals, approvalsOf, followApprovals, NO_APPROVALS } from "./approvals";
import type { Delta, Entry, LastTurn, Look, Pending, Status, TranscriptPage, Turn } from "../net/wire";

export interface SessionState {
  sessionId: string;
  createdAt: string | null;
  /** The loop that was chosen for it; null is the server's own. */
  loop: string | null;
  /** Where the stream goes on after: seq and incarnation. */
  cursor: string;
  seq: number;
  title: string | null;
  /** The part of the active path that is loaded. */
  path: Path;
  status: Status;
  cause: string | null;
  turn: Turn | null;
  lastTurn: LastTurn | null;
  queued: readonly Pending[];
  /** The `seq` that status, turn and queue stand at. */
  statusSeq: number;
  live: readonly LiveMessage[];
  /** The calls that wait for an approval, by call id. */
  approvals: Approvals;
  /** The newest facts that tell what became of what was cut off. */
  facts: readonly Entry[];
  isStale: boolean;
  /** A `seq` was skipped: what is shown cannot be trusted, and the session is opened anew. */
  hasGap: boolean;
  /** What came since the transcript is being fetched again; null when it is not. */
  meanwhile: readonly Entry[] | null;
}

const MOST_FACTS = 64;

export type Action =
  | { type: "entry"; entry: Entry; cursor: string | null }
  | { type: "delta" | "partial"; delta: Delta }
  | { type: "status"; look: Look }
  | { type: "older"; before: string; page: TranscriptPage }
  | { type: "newer"; after: string; page: TranscriptPage }
  | { type: "jumped"; path: Path }
  | { type: "refetching" }
  | { type: "refetched"; page: TranscriptPage }
  | { type: "refetch_failed" };

/** The state of a session that was looked at first and whose newest page was fetched after. */
export function openSession(look: Look, page: TranscriptPage): SessionState {
  const seq = look.last_seq ?? 0;
  return {
    sessionId: look.session_id,
    createdAt: look.created_at ?? null,
    title: look.title ?? null,
    loop: look.loop ?? null,
    cursor: look.cursor ?? "0",
    seq,
    path: openPath(page),
    status: look.status,
    cause: look.cause ?? null,
    turn: look.turn ?? null,
    lastTurn: look.last_turn ?? null,
    queued: look.queued ?? [],
    statusSeq: seq,
    live: [],
    approvals: approvalsOf(look.approvals ?? [], NO_APPROVALS),
    facts: [],
    isStale: false,
    hasGap: false,
    meanwhile: null,
  };
}

export function reduce(state: SessionState, action: Action): SessionState {
  switch (action.type) {
    case "entry":
      return takeEntry(state, action.entry, action.cursor);
    case "delta":
    case "partial":
      return takeDelta(state, action.delta);
    case "status":
      return takeStatus(state, action.look);
    case "older":
      return withPath(state, addOlder(state.path, action.before, action.page));
    case "newer":
      return withPath(state, addNewer(state.path, action.after, action.page));
    case "jumped":
      return { ...state, path: action.path, isStale: false };
    case "refetching":
      return { ...state, isStale: false, meanwhile: [] };
    case "refetched":
      return takeTranscript(state, action.page);
    case "refetch_failed":
      return { ...state, isStale: true, meanwhile: null };
  }
}

function takeEntry(state: SessionState, entry: Entry, cursor: string | null): SessionState {
  if (entry.seq <= state.seq) return state;
  if (entry.seq > state.seq + 1) return state.hasGap ? state : { ...state, hasGap: true };
  let next: SessionState = { ...state, seq: entry.seq, cursor: cursor ?? state.cursor };
  if (next.meanwhile !== null) next.meanwhile = [...next.meanwhile, entry];
  if (isTelling(entry)) next.facts = [...state.facts, entry].slice(-MOST_FACTS);
  next = place(next, entry);
  if (entry.seq > next.statusSeq) next.approvals = followApprovals(next.approvals, entry);
  if (entry.seq > next.statusSeq) next = follow(next, entry);
  else next = settle(next);
  return next;
}

function withPath(state: SessionState, path: Path): SessionState {
  return path === state.path ? state : { ...state, path };
}

/** The path with this entry in its place, if it changes the path. */
function place(state: SessionState, entry: Entry): SessionState {
  if (entry.type === "leaf_moved") return moveLeaf(state, entry);
  if (entry.parent_id === undefined) return state;
  const live = state.live.filter((message) => message.messageId !== entry.id);
  const next = live.length === state.live.length ? state : { ...state, live };
  const path = extend(next.path, entry);
  return path === "unknown" ? { ...next, isStale: true } : withPath(next, path);
}

function moveLeaf(state: SessionState, fact: Entry): SessionState {
  const path = cutAfter(state.path, fact.leaf_id ?? null, fact.seq);
  return path === "unknown" ? { ...state, isStale: true } : withPath(state, path);
}

/** Status, turn and queue, as the facts tell them before the server's own `status` comes. */
function follow(state: SessionState, entry: Entry): SessionState {
  const next = { ...state, statusSeq: entry.seq };
  switch (entry.type) {
    case "turn_started":
      next.turn = { turn_id: entry.turn_id ?? "" };
      next.status = "running";
      next.cause = null;
      return settle(next);
    case "turn_ended":
      if (state.turn !== null && state.turn.turn_id !== entry.turn_id) return next;
      next.turn = null;
      next.cause = entry.cause ?? null;
      next.status = statusAfter(entry.reason);
      next.lastTurn = { turn_id: entry.turn_id ?? "", reason: entry.reason ?? "", cause: next.cause };
      return settle(next);
    case "message_queued":
      if (!state.queued.some((pending) => pending.message_id === entry.message_id)) {
        const pending = { message_id: entry.message_id ?? "", parts: entry.parts ?? [] };
        next.queued = [...state.queued, pending];
      }
      return next;
    case "message_discarded":
      next.queued = state.queued.filter((pending) => pending.message_id !== entry.message_id);
      return next;
    case "message":
      next.queued = state.queued.filter((pending) => pending.message_id !== entry.id);
      return next;
    default:
      return next;
  }
}

function statusAfter(reason: string | undefined): Status {
  if (reason === "interrupted") return "interrupted";
  return reason === "failed" || reason === "refused" ? "failed" : "idle";
}

/** Drops messages in the making that no running turn will end. */
function settle(state: SessionState): SessionState {
  if (state.live.length === 0 || state.seq < state.statusSeq) return state;
  const turnId = state.status === "running" ? (state.turn?.turn_id ?? null) : null;
  const live = state.live.filter(
    (message) => turnId !== null && (message.turnId === null || message.turnId === turnId),
  );
  return live.length === state.live.length ? state : { ...state, live };
}

function takeDelta(state: SessionState, delta: Delta): SessionState {
  const id = delta.message_id;
  if (state.path.entries.some((entry) => entry.id === id)) return state;
  const live = placeDelta(state.live, delta);
  return live === state.live ? state : { ...state, live };
}

function takeStatus(state: SessionState, look: Look): SessionState {
  if (look.status === "deleted") {
    return { ...state, status: "deleted", turn: null, queued: [], live: [] };
  }
  const seq = look.last_seq ?? state.statusSeq;
  if (seq < state.statusSeq) return state;
  return settle({
    ...state,
    status: look.status,
    cause: look.cause ?? null,
    title: look.title ?? state.title,
    turn: look.turn ?? null,
    lastTurn: look.last_turn ?? state.lastTurn,
    queued: look.queued ?? state.queued,
    approvals: look.approvals === undefined ? state.approvals : approvalsOf(look.approvals, state.approvals),
    statusSeq: seq,
  });
}

function takeTranscript(state: SessionState, page: TranscriptPage): SessionState {
  const meanwhile = state.meanwhile ?? [];
  const fetched: SessionState = {
    ...state,
    path: openPath(page),
    isStale: false,
    meanwhile: null,
  };
  return meanwhile.reduce(place, fetched);
}
