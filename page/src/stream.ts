/**
 * The event stream, kept open: after any loss it connects again with the cursors of that moment.
 *
 * It is read with fetch and not with EventSource, so that each connection can name fresh cursors, a
 * refusal can be told from a loss, and a connection that has gone silent is given up.
 */
import { Problem, request } from "./api";
import { type SseEvent, SseParser } from "./sse";

export type Connection = "connecting" | "live" | "lost";

export interface StreamOptions {
  /** The address of the next connection, cursors included. */
  url(): URL;
  onEvents(events: readonly SseEvent[]): void;
  onConnection(connection: Connection): void;
  /** The server refused the stream; true: try again later. */
  onRefused(problem: Problem): boolean;
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
  private heardAt = 0;
  private readonly wake = (): void => this.onWake();

  constructor(private readonly options: StreamOptions) {
    window.addEventListener("online", this.wake);
    document.addEventListener("visibilitychange", this.wake);
    this.connect();
  }

  close(): void {
    this.isClosed = true;
    window.removeEventListener("online", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
    this.drop();
  }

  /** Connects anew, to what the address names now. */
  reconnect(): void {
    if (!this.isClosed) this.connect();
  }

  private drop(): void {
    clearTimeout(this.timer);
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
      const isRefusal = error instanceof Problem && !error.isUnreached;
      if (isRefusal && !this.options.onRefused(error)) {
        this.options.onConnection("lost");
        return;
      }
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

  private onWake(): void {
    if (this.isClosed || document.visibilityState === "hidden") return;
    const isSilent = Date.now() - this.heardAt > SILENCE_MS;
    if (this.abort === null || isSilent) this.connect();
  }
}
