/**
 * A tab's end of the stream: of the one that all tabs share where the browser has SharedWorkers,
 * else of its own, which is closed while the tab is hidden, so that many tabs leave each other room
 * (a browser opens six connections to one server, and a stream keeps its one).
 */
import { baseUrl } from "./api";
import { type FromHub, Hub, type ToHub } from "./hub";

export interface Feed {
  /** What this tab shows, each session with the cursor that it stands at. */
  want(sessions: readonly (readonly [string, string])[]): void;
  /** Connects now if there is no connection. */
  wake(): void;
}

export interface FeedOptions {
  onMessage(message: FromHub): void;
  /** What is shown, with the cursors of this moment, for a stream that begins again. */
  shown(): readonly (readonly [string, string])[];
}

const WELCOME_MS = 3_000;
const STILL_HERE_MS = 60_000;

export function openFeed(options: FeedOptions): Feed {
  let post: (message: ToHub) => void;
  let stillHere: ReturnType<typeof setInterval> | undefined;

  const alone = (): void => {
    clearInterval(stillHere);
    post = openAlone(options);
  };

  const together = (): void => {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: "perdure" });
    const { port } = worker;
    const giveUp = (): void => {
      clearTimeout(isLate);
      port.onmessage = null;
      port.postMessage({ type: "bye" } satisfies ToHub);
      alone();
    };
    const isLate = setTimeout(giveUp, WELCOME_MS);
    const give = ({ data }: MessageEvent<FromHub>): void => {
      clearTimeout(isLate);
      options.onMessage(data);
    };
    worker.onerror = giveUp;
    port.onmessage = give;
    post = (message) => port.postMessage(message);
    void holdLock().then((lock) => {
      post({ type: "hello", base: baseUrl().href, lock });
      post({ type: "want", sessions: options.shown() });
      if (lock === null) stillHere = setInterval(() => post({ type: "still here" }), STILL_HERE_MS);
    });
    addEventListener("pagehide", () => post({ type: "bye" }));
    addEventListener("pageshow", (event) => {
      if (event.persisted) location.reload();
    });
  };

  if (typeof SharedWorker === "undefined") post = openAlone(options);
  else {
    post = () => undefined;
    together();
  }
  addEventListener("online", () => post({ type: "wake" }));
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") post({ type: "wake" });
  });
  return {
    want: (sessions) => post({ type: "want", sessions }),
    wake: () => post({ type: "wake" }),
  };
}

/** A lock that this tab holds as long as it lives; null where the browser has none to give. */
async function holdLock(): Promise<string | null> {
  const { locks } = navigator as { locks?: LockManager };
  if (locks === undefined) return null;
  const name = `perdure.tab.${crypto.getRandomValues(new Uint32Array(4)).join("")}`;
  return new Promise((resolve) => {
    locks
      .request(name, () => {
        resolve(name);
        return new Promise(() => undefined);
      })
      .catch(() => resolve(null));
  });
}

function openAlone({ onMessage, shown }: FeedOptions): (message: ToHub) => void {
  const hub = new Hub();
  const join = (): void => {
    hub.take(onMessage, { type: "hello", base: baseUrl().href, lock: null });
    hub.take(onMessage, { type: "want", sessions: shown() });
  };
  let isIn = false;
  const turn = (): void => {
    const isHidden = document.visibilityState === "hidden";
    if (isHidden === !isIn) return;
    isIn = !isHidden;
    if (isIn) join();
    else hub.leave(onMessage);
  };
  document.addEventListener("visibilitychange", turn);
  addEventListener("pagehide", () => hub.leave(onMessage));
  turn();
  return (message) => {
    if (isIn) hub.take(onMessage, message);
  };
}
