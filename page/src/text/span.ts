/** Words for how long something takes, and how far off it is. */
import { showSeconds } from "./format";

const SIZES: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ["year", 365.25 * 86_400],
  ["month", 30.44 * 86_400],
  ["week", 7 * 86_400],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });

/** "in 3 hours", "2 days ago": the largest unit that there is at least one of. */
export function showDistance(iso: string, nowMs: number): string {
  const seconds = (new Date(iso).getTime() - nowMs) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (Math.abs(seconds) < 5) return "now";
  const [unit, size] = SIZES.find(([, each]) => Math.abs(seconds) >= each * 0.95) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

const UNITS: readonly (readonly [string, number])[] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

/** "1 hour 30 minutes": exactly, in the two largest units that say it. */
export function showSpan(seconds: number): string {
  const said: string[] = [];
  let rest = seconds;
  for (const [unit, size] of UNITS) {
    const count = unit === "second" ? Math.round(rest * 10) / 10 : Math.floor(rest / size);
    if (count === 0 || said.length === 2) continue;
    rest -= count * size;
    said.push(`${count} ${unit}${count === 1 ? "" : "s"}`);
  }
  return said.join(" ") || "0 seconds";
}

/** How long it took, or takes by now. */
export function showElapsed(from: string, to: string | null, nowMs: number): string {
  const end = to === null ? nowMs : new Date(to).getTime();
  const seconds = Math.max((end - new Date(from).getTime()) / 1000, 0);
  if (seconds < 10 && to !== null) return showSeconds(seconds);
  return seconds < 60 ? `${Math.floor(seconds)} s` : showSpan(Math.floor(seconds));
}
