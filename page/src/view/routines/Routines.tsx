import { useEffect, useState } from "preact/hooks";
import { listRoutines, type Routine } from "../../net/around";
import { useAround } from "../../state/around";
import { hrefOfPlace, route } from "../../state/route";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";
import { Pill } from "../place/Pill";
import { Nothing, Place, PlaceProblem } from "../place/Place";
import { Distance, DueTime } from "../place/When";
import { RoutineDialog } from "./RoutineDialog";
import { RoutinePage } from "./RoutinePage";
import { STATUS_TONES } from "./words";

const PAGE = 100;

/** Schedules that send messages: all of them, or the one that the address names. */
export function Routines() {
  const id = route.value.rest;
  return id === "" ? <RoutineList /> : <RoutinePage key={id} id={id} />;
}

function RoutineList() {
  const [count, setCount] = useState(PAGE);
  const [isMaking, setMaking] = useState(false);
  const { found, problem, look } = useAround("routine", null, "routines", () => listRoutines(count));
  useEffect(() => {
    if (count > PAGE) look();
  }, [count]);
  const add = (
    <button type="button" class="primary" data-testid="routine-add" onClick={() => setMaking(true)}>
      <Icon name="plus" /> New routine
    </button>
  );
  return (
    <Place title="Routines" actions={add}>
      <p class="lead">A routine sends a message into a session on a schedule. Each due time starts at most once.</p>
      {problem !== null && <PlaceProblem problem={problem} />}
      {found === null && problem === null && <p class="hint">Loading…</p>}
      {found?.found.length === 0 && (
        <Nothing title="No routines yet">
          <p class="hint">
            “Every weekday at nine, tell me what is new.” It runs whether a page is open or not, and its history says what
            became of each time.
          </p>
        </Nothing>
      )}
      <ul class="rows" data-testid="routines">
        {found?.found.map((routine) => <RoutineRow key={routine.routine_id} routine={routine} />)}
      </ul>
      {found !== null && found.next !== null && (
        <button type="button" class="quiet" onClick={() => setCount(count + PAGE)}>
          More routines
        </button>
      )}
      {isMaking && <RoutineDialog routine={null} onClose={() => setMaking(false)} />}
    </Place>
  );
}

function RoutineRow({ routine }: { routine: Routine }) {
  const { routine_id: id, status, says, why, running, next_due: due } = routine;
  const isRunning = running.length > 0;
  return (
    <li data-testid="routine" data-routine-id={id} data-status={status}>
      <a href={hrefOfPlace("routines", id)} class={`row-link ${status}`}>
        <span class="row-name">
          <bdi>{visibleText(id)}</bdi>
        </span>
        <span class="row-status">
          <Pill tone={isRunning ? "busy" : STATUS_TONES[status]} words={isRunning ? "running" : status} status={status} />
        </span>
        <span class="row-says">{visibleText(status === "enabled" || why === null ? says : why)}</span>
        <span class="row-when">
          {due[0] !== undefined && (
            <>
              <b>
                <Distance at={due[0]} />
              </b>
              <DueTime at={due[0]} />
            </>
          )}
        </span>
      </a>
    </li>
  );
}
