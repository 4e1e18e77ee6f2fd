import type { SessionState } from "../../model/session";
import { resendTurn } from "../../net/api";
import { attempt } from "../../state/notice";
import { loopNotice, sent } from "../../state/session";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";
import { Remedy } from "../session/Problem";

const CAUSES = {
  interrupted: "This turn was interrupted before it ended.",
  failed: "This turn failed.",
  waiting: "A tool call waits for your approval, above.",
  unrecoverable: "This session cannot go on for as long as this lasts:",
  deleted: "This session was deleted. What is shown here is gone from the server.",
};

/** What the turn at the end of the transcript has come to. */
export function TurnState({ state }: { state: SessionState }) {
  const { status, cause } = state;
  if (status === "running") {
    const notice = loopNotice.value;
    return state.live.length === 0 || notice !== null ? (
      <p class="working" data-testid="working">
        <span />
        <span />
        <span />
        {notice === null ? <span class="unseen">Working</span> : <bdi data-testid="loop-notice">{visibleText(notice)}</bdi>}
      </p>
    ) : null;
  }
  const isStopped = status === "idle" && state.lastTurn?.reason === "stopped";
  if (status === "idle" && !isStopped) return null;
  const canResend = isStopped || status === "interrupted" || status === "failed";
  return (
    <div class={`turn-state ${status}`} data-testid="turn-state" data-status={isStopped ? "stopped" : status}>
      {!isStopped && status !== "waiting" && <Icon name="warning" size={18} />}
      <p>
        {status === "idle" ? "This turn was stopped." : CAUSES[status]}
        {cause !== null && (
          <bdi class="cause">{visibleText(cause)}</bdi>
        )}
      </p>
      {status === "unrecoverable" && (
        <div class="remedy" data-testid="unrecoverable">
          <Remedy id={state.sessionId} />
        </div>
      )}
      {canResend && (
        <button
          type="button"
          data-testid="resend"
          onClick={() =>
            void attempt(async () => {
              await resendTurn(state.sessionId);
              sent.value += 1;
            })
          }
        >
          <Icon name="again" size={14} /> Send again
        </button>
      )}
    </div>
  );
}
