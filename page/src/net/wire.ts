/** What the server sends, as far as the page reads it. Unknown fields stay where they are. */

export interface Part {
  type: string;
  text?: string;
  call_id?: string;
  name?: string | null;
  arguments?: unknown;
  parts?: readonly Part[];
  is_error?: boolean;
  interrupted?: boolean;
  media_type?: string;
  data?: string | null;
  url?: string | null;
  elided?: boolean;
  bytes?: number;
  href?: string;
}

/** Stands for a field that is too long for the page that it would be in. */
export interface Elision {
  elided: true;
  bytes: number;
  href: string;
}

export type Ending = "stopped" | "interrupted" | "failed";

/** A tree entry has the key `parent_id`, always; a fact never has it. */
export interface Entry {
  seq: number;
  id: string;
  type: string;
  created_at: string;
  parent_id?: string | null;
  role?: "system" | "user" | "assistant" | "tool";
  parts?: readonly Part[];
  meta?: boolean;
  end?: Ending | null;
  summary?: string | Elision;
  kind?: string;
  data?: unknown;
  turn_id?: string;
  message_id?: string;
  leaf_id?: string | null;
  reason?: string;
  cause?: string | null;
  /** The ids of all entries that grow from the same parent, this one included; in transcripts. */
  siblings?: readonly string[];
  runtime_id?: string;
  call_id?: string;
  name?: string;
  arguments?: unknown;
  approve?: boolean;
  expires_at?: string | null;
  policy?: Policy;
  event?: string;
  handler?: string;
  input?: unknown;
  output?: unknown;
  exit?: number | null;
}

export type Policy = "queue" | "steer" | "interrupt" | "reject";

export interface Turn {
  turn_id: string;
  message_id?: string;
  started_at?: string;
}

export interface LastTurn {
  turn_id: string;
  reason: string;
  cause?: string | null;
}

export interface Pending {
  message_id: string;
  parts: readonly Part[];
}

export type Status =
  | "idle"
  | "running"
  | "waiting"
  | "interrupted"
  | "failed"
  | "unrecoverable"
  | "deleted";

/** A look at a session; the data of a `status` event too. */
export interface Look {
  session_id: string;
  parent_id?: string | null;
  created_at?: string;
  loop?: string | null;
  runtime?: string | null;
  status: Status;
  cause?: string | null;
  last_seq?: number;
  cursor?: string;
  leaf_id?: string | null;
  turn?: Turn | null;
  last_turn?: LastTurn | null;
  last_activity?: string;
  queued?: readonly Pending[];
  /** Messages wait and nothing runs them by itself. */
  held?: boolean;
  /** The calls that a session which is `waiting` waits for. */
  approvals?: readonly ApprovalLook[];
  /** The beginning of its first message. */
  title?: string | null;
}

export interface ApprovalLook {
  call_id: string;
  name: string;
  arguments: unknown;
  /** The arguments are too long for a look: they are whole in the entry of this `seq`. */
  elided: boolean;
  reason: string | null;
  expires_at: string | null;
  seq: number;
}

export interface Delta {
  session_id: string;
  turn_id?: string | null;
  message_id: string;
  part?: number;
  offset?: number;
  text: string;
  kind?: "text" | "reasoning" | "output";
  call_id?: string;
}

export interface TranscriptPage {
  entries: readonly Entry[];
  has_more: boolean;
  leaf_id: string | null;
}

export interface ListingPage {
  sessions: readonly Look[];
  next: string | null;
}

export interface EntriesPage {
  entries: readonly Entry[];
  has_more: boolean;
  last_seq: number;
}

/** A tree entry by its outline: where it grows, and how it begins. */
export interface Outline {
  seq: number;
  id: string;
  parent_id: string | null;
  type: string;
  role: string | null;
  created_at: string;
  text: string;
  meta?: boolean;
}

export interface TreePage {
  entries: readonly Outline[];
  /** The `seq` to go on after; null on the last page. */
  next: number | null;
}
