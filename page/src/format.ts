/** Words for times, sizes and ids. */

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function showTime(iso: string | undefined | null): string {
  const at = new Date(iso ?? "");
  if (Number.isNaN(at.getTime())) return "";
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? time.format(at) : `${day.format(at)}, ${time.format(at)}`;
}

export function showFullTime(iso: string | undefined | null): string {
  const at = new Date(iso ?? "");
  return Number.isNaN(at.getTime()) ? "" : full.format(at);
}

export function showBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(0)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

const GENERATED = /^[0-9a-f-]{32,36}$/;

/** A session's name for a list: an id that a person chose, else when it was created. */
export function sessionName(sessionId: string, createdAt: string | undefined | null): string {
  if (!GENERATED.test(sessionId)) return sessionId;
  return showTime(createdAt) || shortId(sessionId);
}

export function shortId(sessionId: string): string {
  return GENERATED.test(sessionId) ? `…${sessionId.slice(-6)}` : sessionId;
}
