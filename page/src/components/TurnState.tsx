import { resendTurn } from "../api";
import { attempt } from "../store";
import type { SessionState } from "../session";

const CAUSES = {
  interrupted: "This turn was interrupted before it ended.",
  failed: "This turn failed.",
  waiting: "A tool call waits for an approval.",
  unrecoverable: "This session cannot go on for as long as this lasts:",
  deleted: "This session was deleted.",
};

/** What the turn at the end of the transcript has come to. */
export function TurnState({ state }: { state: SessionState }) {
  const { status, cause } = state;
  if (status === "idle") {
    const isStopped = state.lastTurn?.reason === "stopped";
    return isStopped ? (
      <p class="hint" data-testid="turn-state" data-status="stopped">
        This turn was stopped.
      </p>
    ) : null;
  }
  if (status === "running") {
    const isSilent = state.live.length === 0;
    return isSilent ? (
      <p class="working" data-testid="working" aria-label="Working">
        <span />
        <span />
        <span />
      </p>
    ) : null;
  }
  return (
    <div class={`turn-state ${status}`} data-testid="turn-state" data-status={status} role="status">
      <p>
        {CAUSES[status]}
        {cause !== null && <span class="cause">{cause}</span>}
      </p>
      {(status === "interrupted" || status === "failed") && (
        <button
          type="button"
          data-testid="resend"
          onClick={() => void attempt(() => resendTurn(state.sessionId))}
        >
          {status}: send again
        </button>
      )}
    </div>
  );
}
