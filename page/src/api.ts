/** The server's verbs, same origin and with its cookie. A failure is a `Problem` that a person can read. */
import { parseJson } from "./json";
import type { ListingPage, Look, TranscriptPage } from "./wire";

/** A problem document, or a failure to reach the server (`status` 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
  ) {
    super(detail);
  }

  /** Whether the request may have been lost on its way, so that the same one may be sent again. */
  get isUnreached(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

const BASE = new URL("./v1/", document.baseURI);

export function sessionUrl(sessionId: string, rest = ""): URL {
  // An address cannot hold these as a segment: they would name another one.
  if (sessionId === "." || sessionId === "..") {
    throw new Problem(422, "invalid_session_id", `A session id is not "${sessionId}".`);
  }
  return new URL(`sessions/${encodeURIComponent(sessionId)}${rest}`, BASE);
}

export function streamUrl(parameters: readonly (readonly [string, string])[]): URL {
  const url = new URL("stream", BASE);
  for (const [name, value] of parameters) url.searchParams.append(name, value);
  return url;
}

/** The response, if it is a good one. */
export async function request(url: URL, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "unreached", "The server cannot be reached.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response: Response): Promise<Problem> {
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    const body = (await response.json()) as { detail?: string; title?: string; code?: string };
    return new Problem(response.status, body.code ?? "", body.detail ?? body.title ?? fallback);
  } catch {
    return new Problem(response.status, "", fallback);
  }
}

async function call<T>(method: string, url: URL, body?: unknown, headers: HeadersInit = {}): Promise<T> {
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
export const readHealth = (): Promise<{ loop: string }> => call("GET", new URL("health", BASE));

export const listSessions = (after: string | null, limit = 40): Promise<ListingPage> => {
  const url = new URL("sessions", BASE);
  url.searchParams.set("limit", String(limit));
  if (after !== null) url.searchParams.set("after", after);
  return call("GET", url);
};

export const createSession = (sessionId?: string): Promise<Look> =>
  call("POST", new URL("sessions", BASE), sessionId === undefined ? {} : { session_id: sessionId });

export const lookAt = (sessionId: string): Promise<Look> => call("GET", sessionUrl(sessionId));

export const readTranscript = (
  sessionId: string,
  before: string | null,
  limit: number,
): Promise<TranscriptPage> => {
  const url = sessionUrl(sessionId, "/transcript");
  url.searchParams.set("limit", String(limit));
  if (before !== null) url.searchParams.set("before", before);
  return call("GET", url);
};

/** Sends once however often it is called with this key and text. */
export const sendMessage = (sessionId: string, text: string, key: string): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, "/messages"), { text }, { "idempotency-key": key });

export const stopTurn = (sessionId: string, turnId: string): Promise<{ stopped: boolean }> =>
  call("POST", sessionUrl(sessionId, "/stop"), { turn_id: turnId });

export const resendTurn = (sessionId: string): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, "/resend"), {});

export const goOn = (sessionId: string): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, "/go-on"), {});

export const discardMessage = (sessionId: string, messageId: string): Promise<null> =>
  call("DELETE", sessionUrl(sessionId, `/queue/${encodeURIComponent(messageId)}`));

export const forkSession = (sessionId: string, newId: string): Promise<unknown> =>
  call("POST", sessionUrl(sessionId, "/fork"), { session_id: newId });

/** `entry` is null where there was nothing to summarise. */
export const compactSession = (sessionId: string): Promise<{ entry?: unknown }> =>
  call("POST", sessionUrl(sessionId, "/compact"), {});

export const deleteSession = (sessionId: string): Promise<null> =>
  call("DELETE", sessionUrl(sessionId));

export interface Piece {
  bytes: Uint8Array;
  total: number;
}

/** The bytes of an elided part from `start`, at most `size` of them, and how many there are. */
export async function readPiece(href: string, start: number, size: number): Promise<Piece> {
  const url = new URL(href, BASE);
  if (url.origin !== BASE.origin) throw new Problem(0, "foreign", "This part lies on another server.");
  const response = await request(url, { headers: { range: `bytes=${start}-${start + size - 1}` } });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  return { bytes, total: range ? Number(range[1]) : start + bytes.length };
}
