import { useEffect } from "preact/hooks";
import { isReader, me } from "../../state/me";
import { route } from "../../state/route";
import { problemLook, session, sessionProblem } from "../../state/session";
import { sessionName } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Composer } from "../composer/Composer";
import { Queue } from "../composer/Queue";
import { Transcript } from "../transcript/Transcript";
import { Problem } from "./Problem";
import { SessionHeader } from "./SessionHeader";
import { SESSION_VIEWS } from "./views";

/** One session: its conversation, or one of its other views. */
export function SessionPage({ id }: { id: string }) {
  const state = session.value;
  const problem = sessionProblem.value;
  const look = problemLook.value?.session_id === id ? problemLook.value : null;
  const name = sessionName(id, state?.title ?? look?.title, state?.createdAt);
  useEffect(() => {
    document.title = `${name} · Perdure`;
  }, [name]);

  const view = SESSION_VIEWS.find((each) => each.name === route.value.view);
  if (state === null && (problem === null || view === undefined)) {
    return (
      <main id="main" class="session" tabIndex={-1} aria-label={name}>
        <SessionHeader id={id} name={name} status={problem === null ? null : (look?.status ?? null)} look={look} />
        {problem === null ? <p class="hint middle">Opening…</p> : <Problem id={id} problem={problem} look={look} />}
      </main>
    );
  }
  const status = state?.status ?? look?.status ?? null;
  return (
    <main id="main" class="session" tabIndex={-1} aria-label={name} key={id}>
      <SessionHeader id={id} name={name} status={status} look={look} />
      {view !== undefined ? (
        <view.Component id={id} />
      ) : (
        state !== null && (
          <>
            <Transcript state={state} />
            {state.status !== "deleted" && state.status !== "unrecoverable" && (
              <footer>
                <Queue state={state} />
                {isReader.value ? (
                  <p class="hint reads-only" data-testid="reads-only">
                    <bdi>{visibleText(me.value?.principal ?? "")}</bdi> is signed in to read, and can write nothing here.
                  </p>
                ) : (
                  <Composer state={state} key={id} />
                )}
              </footer>
            )}
          </>
        )
      )}
    </main>
  );
}
