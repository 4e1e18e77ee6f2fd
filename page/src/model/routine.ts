/** A routine as somebody writes it in a form, and what of that the server is told. */
import type { Routine, Schedule, Wanted } from "../net/around";

export type When = "cron" | "every" | "at";
export type Where = "own" | "session" | "new" | "fork";

export const UNITS = { minutes: 60, hours: 3_600, days: 86_400, seconds: 1 } as const;
export type Unit = keyof typeof UNITS;

export interface RoutineForm {
  id: string;
  text: string;
  when: When;
  cron: string;
  zone: string;
  every: string;
  unit: Unit;
  /** A time of the zone, as its clocks show it. */
  at: string;
  where: Where;
  session: string;
  loop: string;
  afterOutage: string;
  overlap: string;
  deadline: string;
  jitter: string;
  resends: string;
  isPaused: boolean;
}

export function newForm(zone: string): RoutineForm {
  return {
    id: "",
    text: "",
    when: "cron",
    cron: "0 9 * * 1-5",
    zone,
    every: "1",
    unit: "hours",
    at: "",
    where: "own",
    session: "",
    loop: "",
    afterOutage: "run_once",
    overlap: "skip",
    deadline: "",
    jitter: "",
    resends: "0",
    isPaused: false,
  };
}

const numberText = (number: number | null): string => (number === null || number === 0 ? "" : String(number));

/** What the form of a routine that there is starts with. */
export function formOf(routine: Routine): RoutineForm {
  const everyS = routine.every_s ?? 3_600;
  const units: readonly Unit[] = ["days", "hours", "minutes"];
  const unit = units.find((each) => everyS % UNITS[each] === 0) ?? "seconds";
  return {
    ...newForm(routine.zone),
    id: routine.routine_id,
    text: textOf(routine),
    when: routine.every_s !== null ? "every" : routine.at !== null ? "at" : "cron",
    cron: routine.cron ?? "0 9 * * 1-5",
    every: String(everyS / UNITS[unit]),
    unit,
    at: routine.at === null ? "" : wallOf(routine.at, routine.zone),
    where: whereOf(routine),
    session: routine.fork_of ?? routine.session_id ?? "",
    loop: routine.loop ?? "",
    afterOutage: routine.after_outage,
    overlap: routine.overlap,
    deadline: numberText(routine.deadline_s),
    jitter: numberText(routine.jitter_s),
    resends: String(routine.resends),
  };
}

export const textOf = (routine: Routine): string =>
  routine.parts.flatMap((part) => (part.type === "text" ? [part.text ?? ""] : [])).join("\n\n");

function whereOf({ fork_of: forkOf, session_id: sessionId, routine_id: id }: Routine): Where {
  if (forkOf !== null) return "fork";
  if (sessionId === null) return "new";
  return sessionId === id ? "own" : "session";
}

/** A time as the clocks of a zone show it, as a field for days and times has it. */
export function wallOf(iso: string, zone: string): string {
  const format = new Intl.DateTimeFormat("en-CA", {
    timeZone: zone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  const parts = Object.fromEntries(format.formatToParts(new Date(iso)).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day}T${parts.hour}:${parts.minute}`;
}

/** What is due when; null where something is not written yet. */
export function scheduleOf(form: RoutineForm): Schedule | null {
  switch (form.when) {
    case "cron":
      return form.cron.trim() === "" ? null : { cron: form.cron.trim(), zone: form.zone.trim() || "UTC" };
    case "every": {
      const every = Number(form.every) * UNITS[form.unit];
      return form.every.trim() === "" || Number.isNaN(every) ? null : { every_s: every };
    }
    case "at":
      return form.at === "" ? null : { at: withSeconds(form.at), zone: form.zone.trim() || "UTC" };
  }
}

/** A field for days and times leaves out seconds that are 0. */
const withSeconds = (at: string): string => (/T\d\d:\d\d$/.test(at) ? `${at}:00` : at);

const secondsOf = (text: string): number | null => (text.trim() === "" ? null : Number(text));

function sessionOf(form: RoutineForm): Wanted {
  switch (form.where) {
    case "own":
      return { new_session: false, fork_of: null, ...(form.id !== "" && { session_id: form.id }) };
    case "session":
      return { new_session: false, fork_of: null, session_id: form.session };
    case "new":
      return { new_session: true, fork_of: null };
    case "fork":
      return { new_session: true, fork_of: form.session };
  }
}

function policiesOf(form: RoutineForm): Wanted {
  return {
    loop: form.where === "fork" ? null : form.loop || null,
    after_outage: form.afterOutage,
    overlap: form.overlap,
    deadline_s: secondsOf(form.deadline),
    jitter_s: secondsOf(form.jitter) ?? 0,
    resends: secondsOf(form.resends) ?? 0,
  };
}

/** All that a new routine is made of. */
export const wantedOf = (form: RoutineForm): Wanted => ({
  ...scheduleOf(form),
  text: form.text,
  ...sessionOf(form),
  ...policiesOf(form),
  status: form.isPaused ? "paused" : "enabled",
});

const differs = (one: unknown, other: unknown): boolean => JSON.stringify(one) !== JSON.stringify(other);

/**
 * What changes a routine into what the form says. What was not touched is not named: an interval is
 * still counted from where it was.
 */
export function changeOf(form: RoutineForm, routine: Routine): Wanted {
  const before = formOf(routine);
  const change: Record<string, unknown> = {};
  if (differs(scheduleOf(form), scheduleOf(before))) Object.assign(change, scheduleOf(form));
  if (form.text !== before.text) {
    const files = routine.parts.filter((part) => part.type === "file");
    if (files.length === 0) change.text = form.text;
    else change.parts = [...(form.text === "" ? [] : [{ type: "text", text: form.text }]), ...files];
  }
  if (differs(sessionOf(form), sessionOf(before))) Object.assign(change, sessionOf(form));
  const policies = policiesOf(form) as Record<string, unknown>;
  const known = policiesOf(before) as Record<string, unknown>;
  for (const [name, value] of Object.entries(policies)) if (value !== known[name]) change[name] = value;
  return change as Wanted;
}
