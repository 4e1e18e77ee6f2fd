/**
 * The one stream of all tabs of a browser, and who wants what of it.
 *
 * A tab names the sessions that it shows, each with the cursor that it stands at. The stream goes on
 * after the lowest of the cursors, so nobody misses an entry; who has one already knows it by its
 * `seq`. The hub runs in a SharedWorker, or in the page where there is none.
 */
import { setBase, streamUrl } from "./api";
import type { Problem } from "./problem";
import type { SseEvent } from "./sse";
import { type Connection, Stream } from "./stream";

export type ToHub =
  | { type: "hello"; base: string; lock: string | null }
  | { type: "want"; sessions: readonly (readonly [string, string])[] }
  | { type: "wake" }
  | { type: "still here" }
  | { type: "bye" };

export interface FeedEvent {
  event: string;
  data: string;
  sessionId: string;
  /** The cursor after an entry. */
  cursor: string | null;
}

export type FromHub =
  | { type: "welcome" }
  | { type: "connection"; connection: Connection }
  | { type: "events"; events: readonly FeedEvent[] }
  | { type: "refused"; status: number; code: string; detail: string; sessionId: string | null };

export type Port = (message: FromHub) => void;

interface Wanted {
  cursor: string;
  ports: Set<Port>;
}

/** The events of no session that is streamed. */
const FOR_ALL: ReadonlySet<string> = new Set(["status", "changed"]);

const GATHER_MS = 15;
const LATE_MS = 700;

export class Hub {
  private readonly ports = new Set<Port>();
  private readonly wanted = new Map<string, Wanted>();
  private stream: Stream | null = null;
  private connection: Connection = "connecting";
  /** The sessions of the connection that is open, in the order of its cursors. */
  private order: readonly string[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private late: ReturnType<typeof setTimeout> | undefined;

  take(port: Port, message: ToHub): void {
    switch (message.type) {
      case "hello":
        setBase(message.base);
        this.ports.add(port);
        port({ type: "welcome" });
        port({ type: "connection", connection: this.connection });
        this.connectSoon();
        return;
      case "want":
        this.want(port, message.sessions);
        return;
      case "wake":
        this.stream?.wake();
        return;
      case "still here":
        return;
      case "bye":
        this.leave(port);
    }
  }

  leave(port: Port): void {
    this.want(port, []);
    this.ports.delete(port);
    if (this.ports.size > 0) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.stream?.close();
    this.stream = null;
  }

  private want(port: Port, sessions: readonly (readonly [string, string])[]): void {
    const names = new Set(sessions.map(([sessionId]) => sessionId));
    for (const [sessionId, { ports }] of this.wanted) {
      if (names.has(sessionId) || !ports.delete(port)) continue;
      if (ports.size === 0) this.wanted.delete(sessionId);
    }
    for (const [sessionId, cursor] of sessions) {
      const known = this.wanted.get(sessionId);
      if (known === undefined) this.wanted.set(sessionId, { cursor, ports: new Set([port]) });
      else {
        known.ports.add(port);
        known.cursor = earlier(known.cursor, cursor);
      }
    }
    // Also where the stream has the session: who comes in mid-message needs the text so far.
    if (sessions.length > 0) this.connectSoon();
  }

  private connectSoon(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (this.stream !== null) this.stream.reconnect();
      else this.stream = new Stream(this.options);
    }, GATHER_MS);
  }

  private readonly options = {
    url: (): URL => {
      const parameters: [string, string][] = [["listing", "1"]];
      this.order = [...this.wanted.keys()];
      for (const [sessionId, { cursor }] of this.wanted) parameters.push(["session", sessionId], ["after", cursor]);
      return streamUrl(parameters);
    },
    onEvents: (events: readonly SseEvent[]): void => this.onEvents(events),
    onConnection: (connection: Connection): void => {
      clearTimeout(this.late);
      // A connection that is only made anew is back before anybody could read that it was away.
      if (connection === "connecting" && this.connection === "live") {
        this.late = setTimeout(() => this.tell(connection), LATE_MS);
      } else this.tell(connection);
    },
    onRefused: (problem: Problem): void => this.onRefused(problem),
  };

  private tell(connection: Connection): void {
    this.connection = connection;
    for (const port of this.ports) port({ type: "connection", connection });
  }

  private onEvents(events: readonly SseEvent[]): void {
    const found = events.map((event) => this.read(event));
    for (const port of this.ports) {
      const own = found.filter(
        ({ event, sessionId }) => FOR_ALL.has(event) || this.wanted.get(sessionId)?.ports.has(port),
      );
      if (own.length > 0) port({ type: "events", events: own });
    }
    for (const { event, sessionId, data } of found) {
      if (event !== "status" || !data.includes('"deleted"') || !isDeleted(data)) continue;
      // A stream says no more of a session that was deleted; another one tells of its next life.
      if (this.wanted.delete(sessionId)) this.connectSoon();
    }
  }

  private read({ event, data, id }: SseEvent): FeedEvent {
    const sessionId = sessionOf(data);
    if (event !== "entry" || id === null) return { event, data, sessionId, cursor: null };
    const cursor = id.split(",")[this.order.indexOf(sessionId)] ?? null;
    const wanted = this.wanted.get(sessionId);
    if (cursor !== null && wanted !== undefined) wanted.cursor = cursor;
    return { event, data, sessionId, cursor };
  }

  /** One session that is gone or damaged does not keep the others from being streamed. */
  private onRefused({ status, code, message, sessionId }: Problem): void {
    if (sessionId !== null) this.wanted.delete(sessionId);
    for (const port of this.ports) port({ type: "refused", status, code, detail: message, sessionId });
    if (sessionId !== null) this.connectSoon();
  }
}

const seqOf = (cursor: string): number => Number.parseInt(cursor, 10);
const incarnationOf = (cursor: string): string => cursor.slice(cursor.indexOf(".") + 1);

/** The cursor to go on after for both; of two incarnations it is the one that was looked at now. */
export function earlier(known: string, wanted: string): string {
  if (incarnationOf(known) !== incarnationOf(wanted)) return wanted;
  return seqOf(known) <= seqOf(wanted) ? known : wanted;
}

const SESSION = /^\{"session_id":("(?:[^"\\]|\\.)*")/;

/** The session of an event, without reading all of it. */
export function sessionOf(data: string): string {
  const found = SESSION.exec(data)?.[1];
  if (found !== undefined) return JSON.parse(found) as string;
  return (JSON.parse(data) as { session_id?: string }).session_id ?? "";
}

function isDeleted(data: string): boolean {
  return (JSON.parse(data) as { status?: string }).status === "deleted";
}
