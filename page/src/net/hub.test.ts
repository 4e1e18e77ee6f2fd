import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { earlier, type FromHub, Hub, sessionOf } from "./hub";

test("of two cursors the stream goes on after the lower one, of two incarnations after the newer look's", () => {
  expect(earlier("7.a", "5.a")).toBe("5.a");
  expect(earlier("7.a", "12.a")).toBe("7.a");
  expect(earlier("7.a", "3.b")).toBe("3.b");
  expect(earlier("0", "3.b")).toBe("3.b");
});

test("an event's session is found whatever its id is made of", () => {
  for (const id of ["s", 'a"b\\', "ü/…", "\u2028"]) {
    expect(sessionOf(JSON.stringify({ session_id: id, seq: 1 }))).toBe(id);
    expect(sessionOf(JSON.stringify({ seq: 1, session_id: id }))).toBe(id);
  }
});

const asked: URL[] = [];
let write: ((text: string) => void) | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = 0;
  vi.stubGlobal("fetch", (url: URL, init: RequestInit) => {
    asked.push(url);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        write = (text) => controller.enqueue(new TextEncoder().encode(text));
        init.signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
      },
    });
    return Promise.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function tab(hub: Hub): { heard: FromHub[]; events: () => string[]; say: (sessions: [string, string][]) => void } {
  const heard: FromHub[] = [];
  const port = (message: FromHub): void => void heard.push(message);
  hub.take(port, { type: "hello", base: "http://x/v1/", lock: null });
  return {
    heard,
    events: () => heard.flatMap((message) => (message.type === "events" ? message.events.map(({ data }) => data) : [])),
    say: (sessions) => hub.take(port, { type: "want", sessions }),
  };
}

const entry = (id: string, seq: number, cursors: string): string =>
  `event: entry\nid: ${cursors}\ndata: {"session_id":"${id}","seq":${seq}}\n\n`;
const cursors = (url: URL | undefined): string[] => url?.searchParams.getAll("after") ?? [];

test("tabs share one stream, each hears of its own sessions, and it goes on where they stand", async () => {
  const hub = new Hub();
  const [one, two] = [tab(hub), tab(hub)];
  one.say([["a", "1.x"]]);
  two.say([["b", "5.y"]]);
  await vi.advanceTimersByTimeAsync(50);
  expect(asked).toHaveLength(1);
  expect(asked[0]?.searchParams.getAll("session")).toEqual(["a", "b"]);
  write?.(entry("a", 2, "2.x,5.y") + entry("b", 6, "2.x,6.y"));
  await vi.advanceTimersByTimeAsync(50);
  expect([one.events().length, two.events().length]).toEqual([1, 1]);
  expect(one.events()[0]).toContain('"a"');

  // A third one stands further back in a session that is streamed already.
  const three = tab(hub);
  three.say([["a", "0.x"]]);
  await vi.advanceTimersByTimeAsync(50);
  expect(cursors(asked.at(-1))).toEqual(["0.x", "6.y"]);
});

test("what one tab no longer shows is streamed as long as another one shows it", async () => {
  const hub = new Hub();
  const [one, two] = [tab(hub), tab(hub)];
  one.say([["a", "1.x"]]);
  two.say([["a", "1.x"]]);
  await vi.advanceTimersByTimeAsync(50);
  one.say([]);
  write?.(entry("a", 2, "2.x"));
  await vi.advanceTimersByTimeAsync(50);
  expect([one.events().length, two.events().length]).toEqual([0, 1]);
});

test("a session that was deleted is asked for no more", async () => {
  const hub = new Hub();
  const one = tab(hub);
  one.say([["a", "1.x"]]);
  await vi.advanceTimersByTimeAsync(50);
  write?.('event: status\ndata: {"session_id":"a","status":"deleted"}\n\n');
  await vi.advanceTimersByTimeAsync(50);
  expect(one.events()).toHaveLength(1);
  expect(asked.at(-1)?.searchParams.getAll("session")).toEqual([]);
});
