/** Words for times, sizes and ids, in the reader's language and time zone. */

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const longDay = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const weekday = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const weekdayYear = new Intl.DateTimeFormat(undefined, {
  weekday: "short",
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const precise = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});
const count = new Intl.NumberFormat();

function read(iso: string | undefined | null): Date | null {
  const at = new Date(iso ?? "");
  return Number.isNaN(at.getTime()) ? null : at;
}

const isToday = (at: Date): boolean => at.toDateString() === new Date().toDateString();

/** Today the time, else the day, as short as it can be told apart. */
export function showWhen(iso: string | undefined | null): string {
  const at = read(iso);
  if (at === null) return "";
  if (isToday(at)) return time.format(at);
  return (at.getFullYear() === new Date().getFullYear() ? day : year).format(at);
}

export function showTime(iso: string | undefined | null): string {
  const at = read(iso);
  if (at === null) return "";
  return isToday(at) ? time.format(at) : `${day.format(at)}, ${time.format(at)}`;
}

/** Where what came first matters. */
export function showToTheSecond(iso: string | undefined | null): string {
  const at = read(iso);
  if (at === null) return "";
  return isToday(at) ? seconds.format(at) : `${day.format(at)}, ${seconds.format(at)}`;
}

/** The day of the week too: for what is to come. */
export function showDayTime(iso: string | undefined | null): string {
  const at = read(iso);
  return at === null ? "" : (at.getFullYear() === new Date().getFullYear() ? weekday : weekdayYear).format(at);
}

export function showClock(iso: string | undefined | null): string {
  const at = read(iso);
  return at === null ? "" : precise.format(at);
}

export function showFullTime(iso: string | undefined | null): string {
  const at = read(iso);
  return at === null ? "" : full.format(at);
}

/** The day of a time, to tell one day's messages from another's. */
export function showDay(iso: string | undefined | null): string {
  const at = read(iso);
  if (at === null) return "";
  return isToday(at) ? "Today" : longDay.format(at);
}

export function showSeconds(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  return seconds < 100 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

export function showBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(0)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Who says a message, by its role. */
export const SPEAKERS: Record<string, string> = { user: "You", assistant: "Assistant", tool: "Tool", system: "System" };

export const showCount = (number: number): string => count.format(number);

export const plural = (number: number, one: string, many = `${one}s`): string =>
  `${showCount(number)} ${number === 1 ? one : many}`;

/** An id that nobody chose, and those that this page makes for its forks. */
const GENERATED = /^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(-[0-9a-f]{6})?$/;
/** The session of a step, of a workflow whose id nobody chose. */
const STEP = /^[0-9a-f]{26}([0-9a-f]{6})-(.+)-[0-9a-f]{8}$/s;

/** What a session is called: an id that a person chose, else how it began, else when. */
export function sessionName(sessionId: string, title: string | null | undefined, createdAt?: string | null): string {
  if (!GENERATED.test(sessionId)) return shortId(sessionId);
  if (title) return title;
  const when = showTime(createdAt);
  return when === "" ? shortId(sessionId) : `New session, ${when}`;
}

export function shortId(sessionId: string): string {
  const [, workflow, step] = STEP.exec(sessionId) ?? [];
  if (step !== undefined) return `${step} · …${workflow}`;
  return GENERATED.test(sessionId) ? `…${sessionId.slice(-6)}` : sessionId;
}

/** An id for a fork: how the other one begins, and six letters that are its own. */
export const forkId = (sessionId: string, key: string): string =>
  `${[...sessionId.replace(/-[0-9a-f]{6}$/, "")].slice(0, 40).join("")}-${key.slice(0, 6)}`;
