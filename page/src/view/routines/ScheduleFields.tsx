import { type RoutineForm, type Unit, UNITS, type When } from "../../model/routine";
import { Segments } from "../place/Segments";
import { Choice } from "../place/fields";

interface ScheduleFieldsProps {
  form: RoutineForm;
  onChange(changed: Partial<RoutineForm>): void;
}

const WHENS: readonly (readonly [When, string])[] = [
  ["cron", "By the calendar"],
  ["every", "Every…"],
  ["at", "Once"],
];

const EXAMPLES: readonly (readonly [string, string])[] = [
  ["0 9 * * 1-5", "weekdays at 9"],
  ["0 8 * * 1", "Mondays at 8"],
  ["0 * * * *", "every hour"],
  ["*/15 * * * *", "every 15 minutes"],
  ["0 0 1 * *", "the 1st of the month"],
];

const ZONES: readonly string[] = ["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];

/** When it is due: by the calendar, by an interval, or once. */
export function ScheduleFields({ form, onChange }: ScheduleFieldsProps) {
  return (
    <>
      <Segments label="When" name="when" value={form.when} options={WHENS} onChange={(when) => onChange({ when: when as When })} />
      {form.when === "cron" && (
        <>
          <div class="field-pair">
            <label>
              Minute, hour, day, month, weekday
              <input
                class="mono"
                dir="ltr"
                spellcheck={false}
                autocomplete="off"
                required
                data-testid="routine-cron"
                value={form.cron}
                onInput={(event) => onChange({ cron: event.currentTarget.value })}
              />
            </label>
            <Zone form={form} onChange={onChange} />
          </div>
          <div class="examples" role="group" aria-label="Examples">
            {EXAMPLES.map(([cron, words]) => (
              <button key={cron} type="button" class="chip" aria-pressed={form.cron === cron} onClick={() => onChange({ cron })}>
                {words}
              </button>
            ))}
          </div>
        </>
      )}
      {form.when === "every" && (
        <div class="field-pair">
          <label>
            Every
            <input type="number" min={0} step="any" required data-testid="routine-every" value={form.every} onInput={(event) => onChange({ every: event.currentTarget.value })} />
          </label>
          <Choice
            label="Unit"
            value={form.unit}
            options={Object.keys(UNITS).map((unit) => [unit, unit] as const)}
            testId="routine-unit"
            onChange={(unit) => onChange({ unit: unit as Unit })}
          />
        </div>
      )}
      {form.when === "at" && (
        <div class="field-pair">
          <label>
            Day and time
            <input type="datetime-local" required data-testid="routine-at" value={form.at} onInput={(event) => onChange({ at: event.currentTarget.value })} />
          </label>
          <Zone form={form} onChange={onChange} />
        </div>
      )}
    </>
  );
}

function Zone({ form, onChange }: ScheduleFieldsProps) {
  return (
    <label>
      Time zone
      <input list="zones" autocomplete="off" spellcheck={false} data-testid="routine-zone" value={form.zone} onInput={(event) => onChange({ zone: event.currentTarget.value })} />
      <datalist id="zones">
        {ZONES.map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
    </label>
  );
}
