/** The server's verbs, same origin and with its cookie. A failure is a `Problem` that a person can read. */
import { parseJson } from "./json";
import { Problem, request } from "./problem";
import type { EntriesPage, Entry, ListingPage, Look, Part, Policy, TranscriptPage, TreePage } from "./wire";

/** A worker has no document; it is told where the API is. */
let base = typeof document === "undefined" ? null : new URL("./v1/", document.baseURI);

export function setBase(address: string): void {
  base = new URL(address);
}

export function baseUrl(): URL {
  if (base === null) throw new Error("the address of the API is not known yet");
  return base;
}

export function sessionUrl(sessionId: string, rest = ""): URL {
  // An address cannot hold these as a segment: they would name another one.
  if (sessionId === "." || sessionId === "..") {
    throw new Problem(422, "invalid_session_id", `A session id is not "${sessionId}".`);
  }
  return new URL(`sessions/${encodeURIComponent(sessionId)}${rest}`, baseUrl());
}

export function streamUrl(parameters: readonly (readonly [string, string])[]): URL {
  const url = new URL("stream", baseUrl());
  for (const [name, value] of parameters) url.searchParams.append(name, value);
  return url;
}

/** Asks the API; the answer as a value. */
export async function call<T>(method: string, url: URL, body?: unknown, headers: HeadersInit = {}): Promise<T> {
  const init: RequestInit = { method, headers };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json", ...headers };
  }
  const response = await request(url, init);
  let content: string;
  try {
    content = await response.text();
  } catch {
    throw new Problem(0, "unreached", "The connection to the server was cut.");
  }
  return (content === "" ? null : parseJson(content)) as T;
}

/** What the server runs on; `loop` answers in sessions that chose none. */
export const readHealth = (): Promise<{ loop: string; version: string; store: string }> =>
  call("GET", new URL("health", baseUrl()));

export interface Filter {
  match: string;
  status: string;
}

export const listSessions = (after: string | null, filter: Filter | null, limit = 50): Promise<ListingPage> => {
  const url = new URL("sessions", baseUrl());
  url.searchParams.set("limit", String(limit));
  if (after !== null) url.searchParams.set("after", after);
  if (filter?.match) url.searchParams.set("match", filter.match);
  if (filter?.status) url.searchParams.set("status", filter.status);
  return call("GET", url);
};

/** What a session can be made with; the server's defaults, where it does not say. */
export interface WantedSession {
  session_id?: string;
  loop?: string;
  runtime?: string;
}

export const createSession = (wanted: WantedSession = {}): Promise<Look> =>
  call("POST", new URL("sessions", baseUrl()), wanted);

export const lookAt = (sessionId: string): Promise<Look> => call("GET", sessionUrl(sessionId));

export interface TranscriptQuery {
  before?: string;
  /** The empty string is before the root. */
  after?: string;
  /** The path to this entry, not to the active leaf. */
  leaf?: string | null;
  /** The path to the newest entry that grows from this one. */
  through?: string;
  limit?: number;
}

export const readTranscript = (sessionId: string, query: TranscriptQuery = {}): Promise<TranscriptPage> => {
  const url = sessionUrl(sessionId, "/transcript");
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
  }
  return call("GET", url);
};

/** A page of the journal: the newest, or the one before or after a `seq`. */
export const readEntries = (
  sessionId: string,
  query: { before?: number; after?: number; limit?: number } = {},
): Promise<EntriesPage> => {
  const url = sessionUrl(sessionId, "/entries");
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  return call("GET", url);
};

export const readTree = (sessionId: string, after: number, limit = 500): Promise<TreePage> => {
  const url = sessionUrl(sessionId, "/tree");
  url.searchParams.set("after", String(after));
  url.searchParams.set("limit", String(limit));
  return call("GET", url);
};

/** The bytes of one whole entry, as the server stores them and adds `session_id` and `seq`. */
export const readRawEntry = async (sessionId: string, seq: number): Promise<string> =>
  (await request(sessionUrl(sessionId, `/entries/${seq}`))).text();

export const exportUrl = (sessionId: string): URL => sessionUrl(sessionId, "/export");

/** Sends once however often it is called with this key and these parts. */
export const sendMessage = (
  sessionId: string,
  parts: readonly Part[],
  key: string,
  policy: Policy = "queue",
): Promise<{ message_id: string }> =>
  call("POST", sessionUrl(sessionId, "/messages"), { parts, if_running: policy }, { "idempotency-key": key });

export const stopTurn = (sessionId: string, turnId: string): Promise<{ stopped: boolean }> =>
  call("POST", sessionUrl(sessionId, "/stop"), { turn_id: turnId });

export const resendTurn = (sessionId: string): Promise<unknown> => call("POST", sessionUrl(sessionId, "/resend"), {});

export const goOn = (sessionId: string): Promise<unknown> => call("POST", sessionUrl(sessionId, "/go-on"), {});

const queueUrl = (sessionId: string, messageId: string): URL =>
  sessionUrl(sessionId, `/queue/${encodeURIComponent(messageId)}`);

export const discardMessage = (sessionId: string, messageId: string): Promise<null> =>
  call("DELETE", queueUrl(sessionId, messageId));

export const editQueued = (sessionId: string, messageId: string, parts: readonly Part[]): Promise<unknown> =>
  call("PUT", queueUrl(sessionId, messageId), { parts });

export const reopenSession = (sessionId: string): Promise<Look> => call("POST", sessionUrl(sessionId, "/reopen"), {});

export const branchTo = (sessionId: string, entryId: string | null): Promise<Look> =>
  call("POST", sessionUrl(sessionId, "/branch"), { entry_id: entryId });

export const forkSession = (sessionId: string, newId: string, entryId?: string): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, "/fork"), { session_id: newId, ...(entryId && { entry_id: entryId }) });

/** `entry` is null where there was nothing to summarise. */
export const compactSession = (sessionId: string): Promise<{ entry?: Entry | null }> =>
  call("POST", sessionUrl(sessionId, "/compact"), {});

export interface Answer {
  approve: boolean;
  reason?: string;
  arguments?: unknown;
}

export const answerApproval = (sessionId: string, callId: string, answer: Answer): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, `/approvals/${encodeURIComponent(callId)}`), answer);

export const deleteSession = (sessionId: string): Promise<null> => call("DELETE", sessionUrl(sessionId));

export interface Me {
  principal: string;
  role: string;
  rights: readonly string[];
}

export const readMe = (): Promise<Me> => call("GET", new URL("me", baseUrl()));

/** Signs this browser in with the printed address or its token; the cookie comes with the answer. */
export async function signIn(addressOrToken: string): Promise<void> {
  const token = /[?&]token=([^&#\s]+)/.exec(addressOrToken)?.[1] ?? encodeURIComponent(addressOrToken.trim());
  await request(new URL(`../?token=${token}`, baseUrl()), { headers: { accept: "application/json" } });
}

export interface Piece {
  bytes: Uint8Array;
  total: number;
}

/** The address of what was left out, if it is this server's. */
function hrefUrl(href: string): URL {
  const url = new URL(href, baseUrl());
  if (url.origin !== baseUrl().origin) throw new Problem(0, "foreign", "This part lies on another server.");
  return url;
}

export const readWhole = async (href: string): Promise<Blob> => (await request(hrefUrl(href))).blob();

/** The bytes of an elided part from `start`, at most `size` of them, and how many there are. */
export async function readPiece(href: string, start: number, size: number): Promise<Piece> {
  const response = await request(hrefUrl(href), { headers: { range: `bytes=${start}-${start + size - 1}` } });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  return { bytes, total: range ? Number(range[1]) : start + bytes.length };
}
