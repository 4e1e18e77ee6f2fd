import { discardMessage, goOn } from "../api";
import { attempt } from "../store";
import type { SessionState } from "../session";
import type { Pending } from "../wire";

/** The accepted messages whose turn has not come; held after a turn that did not complete. */
export function Queue({ state }: { state: SessionState }) {
  const { queued, status, sessionId } = state;
  if (queued.length === 0) return null;
  const isHeld = status !== "running" && status !== "waiting";
  return (
    <section class="queue" data-testid="queue" aria-label="Pending messages">
      <header>
        <span>
          {queued.length} pending{isHeld ? ", held" : ""}
        </span>
        {isHeld && status !== "unrecoverable" && (
          <button type="button" data-testid="go-on" onClick={() => void attempt(() => goOn(sessionId))}>
            Go on
          </button>
        )}
      </header>
      <ol>
        {queued.map((pending) => (
          <li key={pending.message_id} data-testid="queued" data-message-id={pending.message_id}>
            <span>{textOf(pending)}</span>
            <button
              type="button"
              class="quiet"
              aria-label="Discard this message"
              onClick={() => void attempt(() => discardMessage(sessionId, pending.message_id))}
            >
              ×
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function textOf(pending: Pending): string {
  return pending.parts.map((part) => part.text ?? `[${part.type}]`).join(" ");
}
