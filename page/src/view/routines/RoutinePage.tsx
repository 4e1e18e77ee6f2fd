import { useState } from "preact/hooks";
import { changeRoutine, deleteRoutine, readRoutine, type Routine, runRoutine } from "../../net/around";
import { useAround } from "../../state/around";
import { newKey } from "../../state/draft";
import { attempt, say } from "../../state/notice";
import { go, hrefOf, hrefOfPlace } from "../../state/route";
import { textOf } from "../../model/routine";
import { shortId } from "../../text/format";
import { showSpan } from "../../text/span";
import { visibleText } from "../../text/visible";
import { FilePart } from "../part/FilePart";
import { Menu } from "../part/Menu";
import { ConfirmDialog } from "../place/ConfirmDialog";
import { Facts } from "../place/Facts";
import { Pill } from "../place/Pill";
import { Place, PlaceProblem } from "../place/Place";
import { Distance, DueTime, Moment } from "../place/When";
import { RoutineDialog } from "./RoutineDialog";
import { RunHistory } from "./RunHistory";
import { AFTER_OUTAGE, OVERLAPS, STATUS_TONES } from "./words";

const WITHIN = ["routines", "Routines"] as const;

/** One routine: what it sends, when it is due next, and what became of each due time. */
export function RoutinePage({ id }: { id: string }) {
  const { found, problem, look } = useAround("routine", id, id, () => readRoutine(id));
  if (found === null) {
    return (
      <Place title={id} within={WITHIN}>
        {problem === null ? <p class="hint">Loading…</p> : <PlaceProblem problem={problem} />}
      </Place>
    );
  }
  return (
    <Place title={id} within={WITHIN} status={<Status routine={found} />} actions={<Actions routine={found} onChanged={look} />}>
      {found.why !== null && (
        <p class="trouble" data-testid="routine-why">
          {visibleText(found.why)}
        </p>
      )}
      {found.status === "unrecoverable" ? null : (
        <div class="two-columns routine">
          <div>
            <section aria-labelledby="sends" class="first">
              <h2 id="sends">Sends</h2>
              <Message routine={found} />
            </section>
            <RunHistory id={id} running={found.running} />
          </div>
          <aside aria-label="When and how">
            <section aria-labelledby="due" class="second">
              <h2 id="due">Due next</h2>
              <NextDue routine={found} />
            </section>
            <section aria-labelledby="how" class="last">
              <h2 id="how">How</h2>
              <How routine={found} />
            </section>
          </aside>
        </div>
      )}
    </Place>
  );
}

function Status({ routine: { status, running } }: { routine: Routine }) {
  const isRunning = running.length > 0;
  return <Pill tone={isRunning ? "busy" : STATUS_TONES[status]} words={isRunning ? "running" : status} status={status} testId="routine-status" />;
}

function Actions({ routine, onChanged }: { routine: Routine; onChanged(): void }) {
  const [open, setOpen] = useState<"edit" | "delete" | null>(null);
  const { routine_id: id, status } = routine;
  const isFixed = routine.origin === "configuration";
  const change = async (verb: () => Promise<unknown>): Promise<void> => {
    if (await attempt(verb)) onChanged();
  };
  const rests = status === "paused" || status === "stopped";
  return (
    <>
      {status !== "unrecoverable" && (
        <>
          {status !== "done" && (
            <button
              type="button"
              data-testid={rests ? "routine-resume" : "routine-pause"}
              onClick={() => void change(() => changeRoutine(id, { status: rests ? "enabled" : "paused" }))}
            >
              {rests ? "Resume" : "Pause"}
            </button>
          )}
          <button type="button" class="primary" data-testid="routine-run" onClick={() => void change(() => runRoutine(id, newKey()))}>
            Run now
          </button>
        </>
      )}
      <Menu
        label="Routine menu"
        testId="routine-menu"
        items={[
          {
            label: "Edit…",
            testId: "routine-edit",
            isDisabled: isFixed || status === "unrecoverable",
            hint: isFixed ? "in perdure.toml" : undefined,
            onChoose: () => setOpen("edit"),
          },
          { label: "Delete…", testId: "routine-delete", isDanger: true, onChoose: () => setOpen("delete") },
        ]}
      />
      {open === "edit" && <RoutineDialog routine={routine} onClose={() => setOpen(null)} onSaved={onChanged} />}
      {open === "delete" && (
        <ConfirmDialog
          title="Delete this routine?"
          verb="Delete it"
          keep="Keep it"
          onConfirm={() => deleteRoutine(id)}
          onDone={() => {
            say("The routine is deleted.");
            go(hrefOfPlace("routines"));
          }}
          onClose={() => setOpen(null)}
        >
          <p>
            “<bdi>{visibleText(id)}</bdi>” is due no more, and its run history is gone. This cannot be taken back.
          </p>
          <ul class="losses">
            <li>Turns that it started go on</li>
            <li>The sessions that it sent into stay, with all that was said</li>
            {isFixed && <li>It is written in perdure.toml: take it out there too, or the next start makes it anew</li>}
          </ul>
        </ConfirmDialog>
      )}
    </>
  );
}

function Message({ routine }: { routine: Routine }) {
  const files = routine.parts.filter((part) => part.type === "file");
  return (
    <div class="card said" data-testid="routine-message">
      <p dir="auto">{visibleText(textOf(routine))}</p>
      {files.map((part, index) => (
        <FilePart key={index} part={part} />
      ))}
    </div>
  );
}

function NextDue({ routine: { next_due: due, says, status, jitter_s: jitter } }: { routine: Routine }) {
  return (
    <>
      <p class="says">{visibleText(says)}</p>
      {due.length > 0 ? (
        <ol class="due" data-testid="next-due">
          {due.map((at) => (
            <li key={at}>
              <DueTime at={at} />
              <span>
                <Distance at={at} />
              </span>
            </li>
          ))}
        </ol>
      ) : (
        <p class="hint">{status === "done" ? "Nothing more is due." : "Nothing is due while it rests."}</p>
      )}
      {jitter > 0 && <p class="hint">Each run starts up to {showSpan(jitter)} later.</p>}
    </>
  );
}

function How({ routine }: { routine: Routine }) {
  const { session_id: sessionId, fork_of: forkOf, owner } = routine;
  return (
    <Facts
      items={[
        ["Into", sessionId !== null ? <SessionLink id={sessionId} /> : forkOf !== null ? <>a fork of <SessionLink id={forkOf} /> for each run</> : "a new session for each run"],
        ["Loop", routine.loop],
        ["After an outage", AFTER_OUTAGE[routine.after_outage] ?? routine.after_outage],
        ["While one runs", OVERLAPS[routine.overlap] ?? routine.overlap],
        ["Too late", routine.deadline_s !== null && `passed over after ${showSpan(routine.deadline_s)}`],
        ["Sent again", routine.resends > 0 && `up to ${routine.resends} times, when interrupted`],
        ["Defined", routine.origin === "configuration" ? "in perdure.toml" : null],
        ["Owner", owner && <bdi>{visibleText(owner)}</bdi>],
        ["Made", <Moment at={routine.created_at} />],
      ]}
    />
  );
}

function SessionLink({ id }: { id: string }) {
  return (
    <a href={hrefOf(id)} title={id}>
      <bdi>{visibleText(shortId(id))}</bdi>
    </a>
  );
}
