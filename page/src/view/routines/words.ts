/** What routines and their runs are called on the page. */
import type { Routine, Run } from "../../net/around";
import type { Tone } from "../place/Pill";

export const STATUS_TONES: Record<Routine["status"], Tone> = {
  enabled: "good",
  paused: "calm",
  done: "calm",
  stopped: "bad",
  unrecoverable: "bad",
};

const RUN_TONES: Record<string, Tone> = {
  claimed: "busy",
  started: "busy",
  succeeded: "good",
  skipped: "calm",
  missed: "calm",
  discarded: "calm",
  stopped: "calm",
};

export const runTone = (status: string): Tone => RUN_TONES[status] ?? "bad";

const RUN_WORDS: Record<string, string> = { claimed: "starting", started: "running" };

export const runWords = (status: string): string => RUN_WORDS[status] ?? status;

export const CAUSES: Record<Run["cause"], string> = {
  due: "",
  catch_up: "catching up after an outage",
  asked: "asked for",
};

export const AFTER_OUTAGE: Record<string, string> = {
  run_once: "the last one that was missed runs",
  skip: "what was missed is passed over",
};

export const OVERLAPS: Record<string, string> = {
  skip: "it is passed over",
  queue: "it waits for the one before",
  interrupt: "it stops the one before",
};
