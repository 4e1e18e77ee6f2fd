/** The SharedWorker that holds the stream: each tab is a port, and a tab that is gone is let go. */
import { type FromHub, Hub, type Port, type ToHub } from "./hub";

const hub = new Hub();
/** A tab that cannot be watched by its lock says that it is there, even if its timers are slowed. */
const SILENT_MS = 10 * 60_000;

function onConnect(port: MessagePort): void {
  const send: Port = (message: FromHub) => port.postMessage(message);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const leave = (): void => {
    clearTimeout(timer);
    hub.leave(send);
    port.close();
  };
  port.onmessage = ({ data }: MessageEvent<ToHub>) => {
    if (data.type === "bye") {
      leave();
      return;
    }
    if (data.type === "hello" && data.lock !== null) {
      void navigator.locks.request(data.lock, leave);
    } else if (data.type === "hello" || timer !== undefined) {
      clearTimeout(timer);
      timer = setTimeout(leave, SILENT_MS);
    }
    hub.take(send, data);
  };
}

addEventListener("connect", (event) => {
  for (const port of (event as MessageEvent).ports) onConnect(port);
});
