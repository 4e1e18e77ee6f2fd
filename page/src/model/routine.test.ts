import { describe, expect, it } from "vitest";
import type { Routine } from "../net/around";
import { changeOf, formOf, newForm, scheduleOf, wallOf, wantedOf } from "./routine";

const routine: Routine = {
  routine_id: "watch",
  created_at: "2026-01-05T08:00:00Z",
  status: "enabled",
  why: null,
  says: "Every 90 minutes",
  cron: null,
  zone: "UTC",
  every_s: 5_400,
  starts_at: "2026-01-05T08:00:00Z",
  at: null,
  parts: [{ type: "text", text: "look" }],
  session_id: "watch",
  new_session: false,
  loop: null,
  fork_of: null,
  after_outage: "run_once",
  overlap: "skip",
  deadline_s: 300,
  jitter_s: 0,
  resends: 0,
  origin: "api",
  owner: null,
  next_due: [],
  running: [],
};

describe("the form of a routine", () => {
  it("says nothing of what was not touched", () => {
    expect(changeOf(formOf(routine), routine)).toEqual({});
    const daily = { ...routine, every_s: null, starts_at: null, cron: "0 9 * * *", zone: "Europe/Berlin" };
    expect(changeOf(formOf(daily), daily)).toEqual({});
    const once = { ...routine, every_s: null, starts_at: null, at: "2026-03-01T08:30:00Z", zone: "Asia/Tokyo" };
    expect(changeOf(formOf(once), once)).toEqual({});
  });

  it("shows an interval in the largest unit that fits", () => {
    expect(formOf(routine)).toMatchObject({ when: "every", every: "90", unit: "minutes" });
    expect(formOf({ ...routine, every_s: 86_400 })).toMatchObject({ every: "1", unit: "days" });
    expect(formOf({ ...routine, every_s: 7 })).toMatchObject({ every: "7", unit: "seconds" });
  });

  it("changes the schedule as a whole", () => {
    const form = { ...formOf(routine), when: "cron" as const, cron: " 0 7 * * * ", zone: "Europe/Paris" };
    expect(changeOf(form, routine)).toEqual({ cron: "0 7 * * *", zone: "Europe/Paris" });
  });

  it("keeps the files of a message whose text was changed", () => {
    const file = { type: "file", media_type: "image/png", url: "https://example.org/a.png" };
    const with_file = { ...routine, parts: [...routine.parts, file] };
    const form = { ...formOf(with_file), text: "look again" };
    expect(changeOf(form, with_file)).toEqual({ parts: [{ type: "text", text: "look again" }, file] });
  });

  it("takes off what was emptied", () => {
    expect(changeOf({ ...formOf(routine), deadline: "" }, routine)).toEqual({ deadline_s: null });
  });

  it("moves to another session, and to new ones", () => {
    const form = formOf(routine);
    expect(changeOf({ ...form, where: "session", session: "s" }, routine)).toEqual({
      new_session: false,
      fork_of: null,
      session_id: "s",
    });
    expect(changeOf({ ...form, where: "fork", session: "s" }, routine)).toEqual({ new_session: true, fork_of: "s" });
  });

  it("makes a routine of all that it has", () => {
    const form = { ...newForm("Europe/Berlin"), text: "hello", isPaused: true };
    expect(wantedOf(form)).toMatchObject({ cron: "0 9 * * 1-5", zone: "Europe/Berlin", text: "hello", status: "paused" });
    expect(wantedOf(form)).not.toHaveProperty("session_id");
  });

  it("has no schedule while something is missing", () => {
    const form = newForm("UTC");
    expect(scheduleOf({ ...form, cron: " " })).toBeNull();
    expect(scheduleOf({ ...form, when: "every", every: "x" })).toBeNull();
    expect(scheduleOf({ ...form, when: "at" })).toBeNull();
    expect(scheduleOf({ ...form, when: "every", every: "1.5" })).toEqual({ every_s: 5_400 });
  });

  it("knows the clocks of a zone", () => {
    expect(wallOf("2026-03-01T08:30:00Z", "Asia/Tokyo")).toBe("2026-03-01T17:30");
    expect(wallOf("2026-01-01T00:00:00Z", "UTC")).toBe("2026-01-01T00:00");
  });
});
