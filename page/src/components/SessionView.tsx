import { useEffect } from "preact/hooks";
import { connection, hrefOf, session, sessionId, sessionProblem } from "../store";
import { shortId, sessionName } from "../format";
import { Composer } from "./Composer";
import { SessionMenu } from "./SessionMenu";
import { Queue } from "./Queue";
import { Transcript } from "./Transcript";

export function SessionView() {
  const id = sessionId.value;
  const createdAt = session.value?.createdAt;
  useEffect(() => {
    document.title = id === null ? "Perdure" : `${sessionName(id, createdAt)} · Perdure`;
  }, [id, createdAt]);
  if (id === null) {
    return (
      <main class="blank">
        <p class="hint">Choose a session, or begin a new one.</p>
      </main>
    );
  }
  const state = session.value;
  if (sessionProblem.value !== null || state === null) {
    return (
      <main class="session" aria-label={id}>
        <SessionHeader id={id} createdAt={null} status="" />
        <p class="hint middle" data-testid="session-problem">
          {sessionProblem.value ?? "Opening…"}
        </p>
      </main>
    );
  }
  return (
    <main class="session" aria-label={id} key={id}>
      <SessionHeader id={id} createdAt={state.createdAt} status={state.status} />
      <Transcript state={state} />
      {state.status !== "deleted" && (
        <footer>
          <Queue state={state} />
          <Composer state={state} key={id} />
        </footer>
      )}
    </main>
  );
}

function SessionHeader({ id, createdAt, status }: { id: string; createdAt: string | null; status: string }) {
  return (
    <header>
      <a class="back" href="#" aria-label="All sessions">
        ‹
      </a>
      <h1 title={id}>
        <a href={hrefOf(id)}>{sessionName(id, createdAt)}</a>
        {sessionName(id, createdAt) !== id && <small>{shortId(id)}</small>}
      </h1>
      {connection.value !== "live" && (
        <span class={`connection narrow ${connection.value}`} aria-hidden="true">
          offline
        </span>
      )}
      {status !== "" && (
        <span class={`status ${status}`} data-testid="session-status" data-status={status}>
          {status}
        </span>
      )}
      {status !== "" && status !== "deleted" && <SessionMenu id={id} />}
    </header>
  );
}
