import type { Attempt, SeenCall } from "../../net/around";
import { now } from "../../state/around";
import { hrefOf, hrefOfEntry } from "../../state/route";
import { plural, showSeconds } from "../../text/format";
import { showElapsed } from "../../text/span";
import { visibleCode, visibleText } from "../../text/visible";
import { Fold } from "../part/Fold";
import { Pill } from "../place/Pill";
import { Moment } from "../place/When";
import { reasonWords } from "./words";

interface AttemptRowProps {
  attempt: Attempt;
  isNewest: boolean;
  /** The cause that stands above all attempts. */
  said: string | null;
}

/** One attempt at a step: how it ended, what it was seen to do, and where that is told in full. */
export function AttemptRow({ attempt, isNewest, said }: AttemptRowProps) {
  const { reason, started_at: started, ended_at: ended, session_id: sessionId, message_id: messageId } = attempt;
  return (
    <li class="attempt" data-testid="attempt" data-attempt={attempt.attempt} data-reason={reason ?? ""}>
      <Fold
        class="attempt-fold"
        isOpen={isNewest}
        summary={
          <>
            <span class="attempt-name">Attempt {attempt.attempt}</span>
            <Pill tone={reason === null ? "busy" : reason === "completed" ? "good" : "bad"} words={reason === null ? "running" : reasonWords(reason)} />
            <span class="hint">
              <Moment at={started} /> · {showElapsed(started, ended, now.value)}
            </span>
          </>
        }
      >
        {() => <Told attempt={isNewest && attempt.cause === said ? { ...attempt, cause: null } : attempt} />}
      </Fold>
      {sessionId !== null && (
        <a class="tiny" href={messageId === null ? hrefOf(sessionId) : hrefOfEntry(sessionId, messageId)} data-testid="attempt-link">
          Transcript<span class="unseen"> of attempt {attempt.attempt}</span>
        </a>
      )}
    </li>
  );
}

function Told({ attempt: { cause, check, output, prompt, seen } }: { attempt: Attempt }) {
  return (
    <>
      {cause !== null && <p class="trouble">{visibleText(cause)}</p>}
      {check !== null && (
        <div class={check.passed ? "check-found" : "check-found missed"}>
          <p>
            {check.passed ? "The check passed" : "The check did not pass"} <span class="hint">{showSeconds(check.seconds)}</span>
          </p>
          {check.output !== null && check.output.trim() !== "" && <pre tabIndex={0}>{visibleCode(check.output)}</pre>}
        </div>
      )}
      {output !== null && output.trim() !== "" && (
        <>
          <h3>Its output</h3>
          <pre dir="auto" tabIndex={0} data-testid="attempt-output">
            {visibleCode(output)}
          </pre>
        </>
      )}
      {seen !== null && seen.calls.length > 0 && (
        <>
          <h3>
            {plural(seen.calls.length + seen.earlier, "tool call")}
            {seen.earlier > 0 && `, the last ${seen.calls.length}`}
          </h3>
          <ul class="seen">
            {seen.calls.map((call, index) => (
              <Seen key={index} call={call} />
            ))}
          </ul>
        </>
      )}
      {prompt !== null && (
        <Fold class="aside-fold" summary="What it was asked">
          {() => (
            <p class="prompt" dir="auto">
              {visibleText(prompt)}
            </p>
          )}
        </Fold>
      )}
    </>
  );
}

function Seen({ call: { name, arguments: input, result, state } }: { call: SeenCall }) {
  return (
    <li>
      <p>
        <b dir="auto">{visibleCode(name)}</b> {state !== "ok" && <span class="bad">{state === "error" ? "failed" : "cut off: whether it had effects is not known"}</span>}
      </p>
      <code dir="ltr">{visibleCode(input)}</code>
      {result !== "" && <code dir="ltr">→ {visibleCode(result)}</code>}
    </li>
  );
}
