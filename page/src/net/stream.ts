/**
 * One event stream, kept open: after any loss it connects again with the cursors of that moment.
 *
 * It is read with fetch and not with EventSource, so that each connection can name fresh cursors, a
 * refusal can be told from a loss, and a connection that has gone silent is given up. It runs in a
 * page and in a worker alike.
 */
import { Problem, request } from "./problem";
import { type SseEvent, SseParser } from "./sse";

export type Connection = "connecting" | "live" | "lost";

export interface StreamOptions {
  /** The address of the next connection, cursors included. */
  url(): URL;
  onEvents(events: readonly SseEvent[]): void;
  onConnection(connection: Connection): void;
  /** The server refused the stream, which is tried again later. */
  onRefused(problem: Problem): void;
}

/** Heartbeats come at least every 15 seconds; three missed ones are a dead connection. */
const SILENCE_MS = 45_000;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 4_000;

export class Stream {
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private delayMs = FIRST_DELAY_MS;
  private isClosed = false;
  private isLive = false;
  private heardAt = 0;

  constructor(private readonly options: StreamOptions) {
    this.connect();
  }

  close(): void {
    this.isClosed = true;
    this.drop();
  }

  /** Connects anew, to what the address names now. */
  reconnect(): void {
    if (!this.isClosed) this.connect();
  }

  /** Somebody is back: a connection that may have died meanwhile is not waited for. */
  wake(): void {
    if (this.isClosed) return;
    if (!this.isLive || Date.now() - this.heardAt > SILENCE_MS) this.connect();
  }

  private drop(): void {
    clearTimeout(this.timer);
    this.isLive = false;
    this.abort?.abort();
    this.abort = null;
  }

  private connect(): void {
    this.drop();
    this.abort = new AbortController();
    this.options.onConnection("connecting");
    void this.read(this.abort);
  }

  private async read(abort: AbortController): Promise<void> {
    const silence = (): void => {
      clearTimeout(this.timer);
      this.heardAt = Date.now();
      this.timer = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      silence();
      const headers = { accept: "text/event-stream" };
      const response = await request(this.options.url(), { signal: abort.signal, headers });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      if (reader === undefined) throw new Problem(0, "unreached", "The stream has no body.");
      if (this.abort !== abort) return;
      this.isLive = true;
      this.options.onConnection("live");
      const parser = new SseParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.abort !== abort) break;
        silence();
        this.delayMs = FIRST_DELAY_MS;
        const events = parser.push(value);
        if (events.length > 0) this.options.onEvents(events);
      }
    } catch (error) {
      if (this.abort !== abort) return;
      if (error instanceof Problem && !error.isUnreached) this.options.onRefused(error);
    }
    if (this.abort === abort) this.retry();
  }

  private retry(): void {
    if (this.isClosed) return;
    this.drop();
    this.options.onConnection("lost");
    this.timer = setTimeout(() => this.connect(), this.delayMs * (0.75 + Math.random() / 2));
    this.delayMs = Math.min(this.delayMs * 2, LONGEST_DELAY_MS);
  }
}
