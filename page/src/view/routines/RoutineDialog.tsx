import { useState } from "preact/hooks";
import { changeOf, formOf, newForm, type RoutineForm, scheduleOf, type Where, wantedOf } from "../../model/routine";
import { changeRoutine, makeRoutine, type Routine } from "../../net/around";
import { loadDraft, saveDraft } from "../../state/draft";
import { go, hrefOfPlace } from "../../state/route";
import { visibleText } from "../../text/visible";
import { Dialog } from "../part/Dialog";
import { Fold } from "../part/Fold";
import { Choice, LoopField } from "../place/fields";
import { DuePreview } from "./DuePreview";
import { ScheduleFields } from "./ScheduleFields";

interface RoutineDialogProps {
  /** What is changed; null makes a new one. */
  routine: Routine | null;
  onClose(): void;
  onSaved?(): void;
}

/** A session's id has no tab, so no draft of a message has this name. */
const draftName = (routine: Routine | null): string => `\troutine\t${routine?.routine_id ?? ""}`;

function startForm(routine: Routine | null): RoutineForm {
  const fresh = routine === null ? newForm(Intl.DateTimeFormat().resolvedOptions().timeZone) : formOf(routine);
  try {
    const draft = JSON.parse(loadDraft(draftName(routine)).text || "{}") as Partial<RoutineForm>;
    return { ...fresh, ...draft, id: routine?.routine_id ?? draft.id ?? fresh.id };
  } catch {
    return fresh; // it is of another version of the page
  }
}

const WHERES: readonly (readonly [Where, string])[] = [
  ["own", "A session of its own"],
  ["session", "A session that I name"],
  ["new", "A new session for each run"],
  ["fork", "A fork of a session for each run"],
];

/** Makes or changes a routine, and shows when it would be due before anything is stored. */
export function RoutineDialog({ routine, onClose, onSaved }: RoutineDialogProps) {
  const [form, setForm] = useState(() => startForm(routine));
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const name = draftName(routine);
  const change = (changed: Partial<RoutineForm>): void => {
    const next = { ...form, ...changed };
    setForm(next);
    setProblem("");
    saveDraft(name, { text: JSON.stringify(next), key: null });
  };
  const discard = (): void => {
    saveDraft(name, null);
    onClose();
  };
  const save = async (): Promise<void> => {
    if (isBusy) return;
    setBusy(true);
    try {
      const saved =
        routine === null
          ? await makeRoutine(form.id.trim() || null, wantedOf(form))
          : await changeRoutine(routine.routine_id, changeOf(form, routine));
      saveDraft(name, null);
      onClose();
      onSaved?.();
      if (routine === null) go(hrefOfPlace("routines", saved.routine_id));
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  const schedule = scheduleOf(form);
  return (
    <Dialog
      title={routine === null ? "New routine" : "Edit the routine"}
      class="wide"
      onClose={onClose}
      onSubmit={() => void save()}
      testId="routine-dialog"
      actions={
        <>
          <button type="button" data-testid="routine-discard" onClick={discard}>
            {routine === null ? "Discard" : "Cancel"}
          </button>
          <button type="submit" class="primary" disabled={isBusy} data-testid="routine-save">
            {routine === null ? "Make it" : "Save"}
          </button>
        </>
      }
    >
      <label>
        What it says
        <textarea
          rows={3}
          dir="auto"
          required={routine === null}
          data-testid="routine-text"
          value={form.text}
          onInput={(event) => change({ text: event.currentTarget.value })}
        />
      </label>
      <ScheduleFields form={form} onChange={change} />
      <DuePreview schedule={schedule} />
      <div class="field-pair">
        <Choice label="Where it says it" value={form.where} options={WHERES} testId="routine-where" onChange={(where) => change({ where: where as Where })} />
        {(form.where === "session" || form.where === "fork") && (
          <label>
            {form.where === "fork" ? "The session to fork" : "The session's id"}
            <input required value={form.session} data-testid="routine-session" onInput={(event) => change({ session: event.currentTarget.value })} />
          </label>
        )}
        {routine === null && form.where !== "session" && form.where !== "fork" && (
          <label>
            Its name
            <input value={form.id} placeholder="made up" data-testid="routine-id" onInput={(event) => change({ id: event.currentTarget.value })} />
          </label>
        )}
      </div>
      {routine === null && (form.where === "session" || form.where === "fork") && (
        <label>
          Its name
          <input value={form.id} placeholder="made up" data-testid="routine-id" onInput={(event) => change({ id: event.currentTarget.value })} />
        </label>
      )}
      <Fold class="more-fields" summary="When something is in the way" testId="routine-more">
        {() => <Policies form={form} isNew={routine === null} onChange={change} />}
      </Fold>
      {problem !== "" && (
        <p class="problem" role="alert" data-testid="routine-problem">
          {visibleText(problem)}
        </p>
      )}
    </Dialog>
  );
}

interface PoliciesProps {
  form: RoutineForm;
  isNew: boolean;
  onChange(changed: Partial<RoutineForm>): void;
}

function Policies({ form, isNew, onChange }: PoliciesProps) {
  return (
    <>
      <div class="field-pair">
        <Choice
          label="While the run before goes on"
          value={form.overlap}
          options={[
            ["skip", "it is passed over"],
            ["queue", "it waits for it"],
            ["interrupt", "it stops it"],
          ]}
          testId="routine-overlap"
          onChange={(overlap) => onChange({ overlap })}
        />
        <Choice
          label="After an outage"
          value={form.afterOutage}
          options={[
            ["run_once", "the last one missed runs"],
            ["skip", "none of them runs"],
          ]}
          testId="routine-after-outage"
          onChange={(afterOutage) => onChange({ afterOutage })}
        />
      </div>
      <div class="field-pair three">
        <label>
          Too late after (seconds)
          <input type="number" min={1} step="any" placeholder="never" value={form.deadline} onInput={(event) => onChange({ deadline: event.currentTarget.value })} />
        </label>
        <label>
          Spread over (seconds)
          <input type="number" min={0} step="any" placeholder="0" value={form.jitter} onInput={(event) => onChange({ jitter: event.currentTarget.value })} />
        </label>
        <label>
          Sent again if interrupted
          <input type="number" min={0} max={10} step={1} value={form.resends} onInput={(event) => onChange({ resends: event.currentTarget.value })} />
        </label>
      </div>
      {form.where !== "fork" && <LoopField value={form.loop} onChange={(loop) => onChange({ loop })} />}
      {isNew && (
        <label class="check">
          <input type="checkbox" checked={form.isPaused} onChange={(event) => onChange({ isPaused: event.currentTarget.checked })} />
          Paused at first
        </label>
      )}
    </>
  );
}
