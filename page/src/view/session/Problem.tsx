import { useState } from "preact/hooks";
import { reopenSession } from "../../net/api";
import type { Problem as ProblemOf } from "../../net/problem";
import type { Look } from "../../net/wire";
import { attempt, say } from "../../state/notice";
import { hrefOf } from "../../state/route";
import { open } from "../../state/session";
import { newSession } from "../../state/sessions";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

interface ProblemProps {
  id: string;
  problem: ProblemOf;
  look: Look | null;
}

const DAMAGES = new Set(["journal_corrupt", "state_unreplayable", "unrecoverable"]);

/** Why a session cannot be shown, and what can be done about it. */
export function Problem({ id, problem, look }: ProblemProps) {
  const isDamaged = DAMAGES.has(problem.code) || look?.status === "unrecoverable";
  if (!isDamaged) {
    return (
      <div class="middle" data-testid="session-problem">
        <h2>{problem.isAbsence ? "It is not there" : "It cannot be shown"}</h2>
        <p class="hint">{visibleText(problem.message)}</p>
        <p class="actions">
          {problem.isAbsence && (
            <button type="button" data-testid="make-it" onClick={() => void newSession({ session_id: id })}>
              <Icon name="plus" /> Make it
            </button>
          )}
          <a class="button" href="#">
            All sessions
          </a>
        </p>
      </div>
    );
  }
  return (
    <section class="damaged" data-testid="unrecoverable" aria-label="This session is unrecoverable">
      <div data-testid="session-problem">
        <h2>
          <Icon name="warning" size={20} /> This session cannot be opened
        </h2>
        <p>Nothing of it is shown as if it were whole, and nothing is written to it.</p>
        <h3>The cause</h3>
        <pre tabIndex={0}>{visibleText(look?.cause ?? problem.message)}</pre>
      </div>
      <Remedy id={id} />
    </section>
  );
}

/** What an operator can do; also shown where the session can still be read. */
export function Remedy({ id }: { id: string }) {
  const [isBusy, setBusy] = useState(false);
  const reopen = async (): Promise<void> => {
    setBusy(true);
    const isDone = await attempt(() => reopenSession(id));
    setBusy(false);
    if (isDone) {
      say("It is well again.");
      await open();
    }
  };
  return (
    <>
      <h3>What can be done</h3>
      <ol>
        <li>
          If the cause is gone (the disk has room again, the file is back), open it again. The server looks at all of
          it, and refuses while the cause is there.
          <p>
            <button type="button" class="primary" disabled={isBusy} data-testid="reopen" onClick={() => void reopen()}>
              {isBusy ? "Opening…" : "Open it again"}
            </button>
          </p>
        </li>
        <li>
          If the journal is damaged, keep what is sound of it as a new session, on the server's machine:
          <pre tabIndex={0}>
            perdure salvage {quoted(id)} {quoted(`${id}-salvaged`)}
          </pre>
        </li>
        <li>
          What can still be read is in <a href={hrefOf(id, "everything")}>Everything</a>.
        </li>
      </ol>
    </>
  );
}

/** As one word of a POSIX shell. */
const quoted = (word: string): string => (/^[\w.-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
