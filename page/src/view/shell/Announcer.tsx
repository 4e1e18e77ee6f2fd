import { useEffect, useRef, useState } from "preact/hooks";
import { connection } from "../../state/feed";
import { session } from "../../state/session";

const WORDS: Record<string, string> = {
  running: "Working",
  waiting: "A tool call needs your approval",
  interrupted: "The turn was interrupted",
  failed: "The turn failed",
  unrecoverable: "The session is unrecoverable",
  deleted: "The session was deleted",
};

/**
 * The one live region for what goes on: a word when a turn begins, ends or needs somebody, and not
 * the text that streams by.
 */
export function Announcer() {
  const [said, say] = useState("");
  const before = useRef<{ id: string | null; status: string | null }>({ id: null, status: null });
  const shown = session.value;
  const id = shown?.sessionId ?? null;
  const status = shown?.status ?? null;
  useEffect(() => {
    const { id: oldId, status: oldStatus } = before.current;
    before.current = { id, status };
    if (status === null || id !== oldId || status === oldStatus) return;
    const isStopped = shown?.lastTurn?.reason === "stopped";
    say(status === "idle" ? (isStopped ? "Stopped" : "The answer is there") : (WORDS[status] ?? status));
  }, [id, status]);
  useEffect(() => {
    if (connection.value === "lost") say("The connection is lost; reconnecting");
  }, [connection.value]);
  return (
    <p class="unseen" role="status" data-testid="announcer">
      {said}
    </p>
  );
}
