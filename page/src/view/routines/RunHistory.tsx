import { useEffect, useState } from "preact/hooks";
import { listRuns, type Run } from "../../net/around";
import { now, useAround } from "../../state/around";
import { hrefOf, hrefOfEntry } from "../../state/route";
import { plural } from "../../text/format";
import { showElapsed } from "../../text/span";
import { visibleText } from "../../text/visible";
import { Pill } from "../place/Pill";
import { PlaceProblem } from "../place/Place";
import { Moment } from "../place/When";
import { CAUSES, runTone, runWords } from "./words";

const PAGE = 30;

/** What became of each due time, newest first: also of those that were missed or passed over. */
export function RunHistory({ id, running }: { id: string; running: readonly Run[] }) {
  const [count, setCount] = useState(PAGE);
  const { found, problem, look } = useAround("routine", id, id, () => listRuns(id, count));
  useEffect(() => {
    if (count > PAGE) look();
  }, [count]);
  return (
    <section aria-labelledby="runs">
      <h2 id="runs">
        Runs {running.length > 0 && <span class="hint">{plural(running.length, "run")} now</span>}
      </h2>
      {problem !== null && <PlaceProblem problem={problem} />}
      {found === null && problem === null && <p class="hint">Loading…</p>}
      {found?.found.length === 0 && <p class="hint">It has not run yet.</p>}
      {found !== null && found.found.length > 0 && (
        <ol class="runs" data-testid="runs">
          {found.found.map((run) => (
            <RunRow key={run.run_id} run={run} />
          ))}
        </ol>
      )}
      {found !== null && found.next !== null && (
        <button type="button" class="quiet" data-testid="more-runs" onClick={() => setCount(count + PAGE)}>
          Earlier runs
        </button>
      )}
    </section>
  );
}

function RunRow({ run }: { run: Run }) {
  const { status, session_id: sessionId, message_id: messageId, started_at: started, ended_at: ended } = run;
  const many = run.status === "missed" && run.count !== 1;
  return (
    <li class="run" data-testid="run" data-status={status}>
      <Pill tone={runTone(status)} words={runWords(status)} status={status} />
      <div>
        <p>
          <Moment at={run.due_at} />
          {run.until_at !== null && (
            <>
              {" "}
              to <Moment at={run.until_at} />
            </>
          )}
          {many && <span class="hint">{run.count === null ? "more than were counted" : plural(run.count, "time")}</span>}
          {CAUSES[run.cause] && <span class="hint">{CAUSES[run.cause]}</span>}
          {run.attempts > 1 && <span class="hint">{plural(run.attempts, "attempt")}</span>}
          {started !== null && <span class="hint">{showElapsed(started, ended, now.value)}</span>}
        </p>
        {run.why !== null && <p class="why">{visibleText(run.why)}</p>}
      </div>
      {sessionId !== null && (
        <a class="tiny" href={messageId === null ? hrefOf(sessionId) : hrefOfEntry(sessionId, messageId)} data-testid="run-link">
          Transcript<span class="unseen"> of this run</span>
        </a>
      )}
    </li>
  );
}
