import { useEffect, useState } from "preact/hooks";
import { type Due, previewRoutine, type Schedule } from "../../net/around";
import { Problem } from "../../net/problem";
import { showDayTime, showFullTime } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Distance } from "../place/When";

const TYPING_MS = 250;

/** When a schedule would be due next, or what is wrong with it; the server says both. */
export function DuePreview({ schedule }: { schedule: Schedule | null }) {
  const [due, setDue] = useState<Due | null>(null);
  const [problem, setProblem] = useState("");
  const asked = JSON.stringify(schedule);
  useEffect(() => {
    if (schedule === null) {
      setDue(null);
      setProblem("");
      return undefined;
    }
    let isOver = false;
    const timer = setTimeout(() => {
      previewRoutine(schedule).then(
        (found) => {
          if (isOver) return;
          setDue(found);
          setProblem("");
        },
        (error: unknown) => {
          if (isOver) return;
          setDue(null);
          const isSlow = error instanceof Problem && error.isUnreached;
          setProblem(isSlow ? "The server cannot be reached: when it is due is not known." : error instanceof Error ? error.message : String(error));
        },
      );
    }, TYPING_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [asked]);
  return (
    <div class={problem === "" ? "forecast" : "forecast wrong"} data-testid="routine-preview">
      <output>{visibleText(problem || (due === null ? "Write when it is due." : due.says))}</output>
      {due !== null && problem === "" && (
        <ol class="due">
          {due.due.map((at, index) => (
            <li key={at}>
              <time dateTime={at} title={showFullTime(at)}>
                {showWall(due.local[index] ?? at)}
              </time>
              <span>
                <Distance at={at} />
              </span>
            </li>
          ))}
          {due.due.length === 0 && <li>It is never due: its time has passed.</li>}
        </ol>
      )}
    </div>
  );
}

/** A time as the clocks of its own zone show it. */
const showWall = (local: string): string => showDayTime(local.slice(0, 19)) || local;
