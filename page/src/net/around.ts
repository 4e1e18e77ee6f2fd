/** What is around the sessions, as the server sends it, and its verbs. */
import { baseUrl, call } from "./api";
import type { Part } from "./wire";

const urlOf = (...segments: string[]): URL => new URL(segments.map(encodeURIComponent).join("/"), baseUrl());

export interface RuntimeLook {
  name: string;
  kind: "in-process" | "subprocess" | "remote";
  status: "idle" | "attached" | "lost";
  since: string;
  runtime_id: string | null;
  workspace: string | null;
  sessions: number;
  calls: number;
  cause: string | null;
  /** Why tools of its MCP servers are missing. */
  troubles: Readonly<Record<string, string>>;
}

export const listRuntimes = async (): Promise<readonly RuntimeLook[]> =>
  (await call<{ runtimes: readonly RuntimeLook[] }>("GET", urlOf("runtimes"))).runtimes;

export type RoutineStatus = "enabled" | "paused" | "stopped" | "done" | "unrecoverable";

export interface Run {
  run_id: string;
  due_at: string;
  status: string;
  cause: "due" | "catch_up" | "asked";
  why: string | null;
  session_id: string | null;
  message_id: string | null;
  attempts: number;
  started_at: string | null;
  ended_at: string | null;
  until_at: string | null;
  count: number | null;
}

/** What can be written of a routine: when it is due. */
export interface Schedule {
  cron?: string | null;
  zone?: string;
  every_s?: number | null;
  starts_at?: string | null;
  at?: string | null;
}

export interface Wanted extends Schedule {
  text?: string;
  parts?: readonly Part[];
  session_id?: string;
  new_session?: boolean;
  fork_of?: string | null;
  loop?: string | null;
  after_outage?: string;
  overlap?: string;
  deadline_s?: number | null;
  jitter_s?: number;
  resends?: number;
  status?: "enabled" | "paused";
}

export interface Routine {
  routine_id: string;
  created_at: string;
  status: RoutineStatus;
  why: string | null;
  /** The schedule in words. */
  says: string;
  cron: string | null;
  zone: string;
  every_s: number | null;
  starts_at: string | null;
  at: string | null;
  parts: readonly Part[];
  session_id: string | null;
  new_session: boolean;
  loop: string | null;
  fork_of: string | null;
  after_outage: string;
  overlap: string;
  deadline_s: number | null;
  jitter_s: number;
  resends: number;
  origin: string;
  owner: string | null;
  next_due: readonly string[];
  running: readonly Run[];
}

export interface Page<T> {
  found: readonly T[];
  next: string | null;
}

const paged = (url: URL, after: string | null, limit: number): URL => {
  url.searchParams.set("limit", String(limit));
  if (after !== null) url.searchParams.set("after", after);
  return url;
};

/** The first so many of a listing, which comes page by page. */
async function readFirst<T>(count: number, read: (after: string | null, limit: number) => Promise<Page<T>>): Promise<Page<T>> {
  const found: T[] = [];
  let next: string | null = null;
  do {
    const page: Page<T> = await read(next, Math.min(count - found.length, 200));
    found.push(...page.found);
    next = page.next;
  } while (next !== null && found.length < count);
  return { found, next };
}

export const listRoutines = (count: number): Promise<Page<Routine>> =>
  readFirst(count, async (after, limit) => {
    const page = await call<{ routines: readonly Routine[]; next: string | null }>("GET", paged(urlOf("routines"), after, limit));
    return { found: page.routines, next: page.next };
  });

export const readRoutine = (id: string): Promise<Routine> => call("GET", urlOf("routines", id));

export const makeRoutine = (id: string | null, wanted: Wanted): Promise<Routine> =>
  call("POST", urlOf("routines"), { ...wanted, ...(id !== null && { routine_id: id }) });

export const changeRoutine = (id: string, wanted: Wanted): Promise<Routine> =>
  call("PATCH", urlOf("routines", id), wanted);

export const deleteRoutine = (id: string): Promise<null> => call("DELETE", urlOf("routines", id));

/** Starts once, however often it is called with this key. */
export const runRoutine = (id: string, key: string): Promise<Run> =>
  call("POST", urlOf("routines", id, "run"), {}, { "idempotency-key": key });

export const listRuns = (id: string, count: number): Promise<Page<Run>> =>
  readFirst(count, async (after, limit) => {
    const page = await call<{ runs: readonly Run[]; next: string | null }>("GET", paged(urlOf("routines", id, "runs"), after, limit));
    return { found: page.runs, next: page.next };
  });

export interface Due {
  says: string;
  due: readonly string[];
  /** By the clocks of its zone. */
  local: readonly string[];
}

export const previewRoutine = (schedule: Schedule): Promise<Due> => call("POST", urlOf("routines", "preview"), schedule);

export type WorkflowStatus = "running" | "waiting" | "paused" | "cancelling" | "completed" | "failed" | "cancelled" | "unrecoverable";

export interface WorkflowBrief {
  workflow_id: string;
  name: string;
  status: WorkflowStatus;
  why: string | null;
  created_at: string;
  ended_at: string | null;
  done: number;
  steps: number;
}

export interface SeenCall {
  name: string;
  arguments: string;
  result: string;
  state: "ok" | "error" | "interrupted";
}

export interface Attempt {
  attempt: number;
  started_at: string;
  session_id: string | null;
  message_id: string | null;
  prompt: string | null;
  /** How it ended; null while it runs. */
  reason: string | null;
  cause: string | null;
  output: string | null;
  seen: { calls: readonly SeenCall[]; earlier: number } | null;
  check: { check: string; passed: boolean; output: string | null; seconds: number } | null;
  ended_at: string | null;
  retry_at: string | null;
}

export interface StepAnswer {
  answer: "approve" | "reject" | "skip";
  reason: string | null;
  by: string | null;
  at: string;
}

export type StepStatus = "pending" | "waiting" | "running" | "retrying" | "completed" | "failed" | "skipped";

export interface Step {
  step: string;
  title: string | null;
  status: StepStatus;
  reason: string | null;
  cause: string | null;
  /** The steps that it waits for. */
  needs: readonly string[];
  /** The steps whose failure it is for. */
  undoes: readonly string[];
  compensate: string | null;
  prompt: string;
  session: string | null;
  loop: string | null;
  runtime: string | null;
  limit_s: number | null;
  approve: boolean;
  check: string | null;
  most_attempts: number;
  retry_at: string | null;
  attempts: readonly Attempt[];
  answers: readonly StepAnswer[];
}

export interface Workflow {
  workflow_id: string;
  name: string;
  description: string | null;
  status: WorkflowStatus;
  why: string | null;
  created_at: string;
  ended_at: string | null;
  owner: string | null;
  inputs: Readonly<Record<string, unknown>>;
  source: string | null;
  /** What a retry is not. */
  note: string;
  steps: readonly Step[];
}

export const listWorkflows = (count: number): Promise<Page<WorkflowBrief>> =>
  readFirst(count, async (after, limit) => {
    const page = await call<{ workflows: readonly WorkflowBrief[]; next: string | null }>("GET", paged(urlOf("workflows"), after, limit));
    return { found: page.workflows, next: page.next };
  });

export const readWorkflow = (id: string): Promise<Workflow> => call("GET", urlOf("workflows", id));

export interface WorkflowText {
  yaml: string;
  inputs: Readonly<Record<string, unknown>>;
  workflow_id?: string;
}

export interface WorkflowPlan {
  name: string;
  inputs: Readonly<Record<string, unknown>>;
  steps: readonly { step: string; needs: readonly string[] }[];
}

/** Whether a text is a workflow, and what its steps wait for; stores nothing. */
export const checkWorkflow = (text: WorkflowText): Promise<WorkflowPlan> => call("POST", urlOf("workflows", "check"), text);

/** Starts once, however often it is called with this id and this text. */
export const startWorkflow = (text: WorkflowText): Promise<Workflow> => call("POST", urlOf("workflows"), text);

export const deleteWorkflow = (id: string): Promise<null> => call("DELETE", urlOf("workflows", id));

export const commandWorkflow = (id: string, verb: "pause" | "resume" | "cancel", body: { why?: string } = {}): Promise<Workflow> =>
  call("POST", urlOf("workflows", id, verb), body);

export const commandStep = (
  id: string,
  step: string,
  verb: "retry" | "skip" | "approve",
  body: { reason?: string; approve?: boolean } = {},
): Promise<Workflow> => call("POST", urlOf("workflows", id, "steps", step, verb), body);

export interface LoopLook {
  name: string;
  kind: string;
  origin: string;
  is_default: boolean;
  /** What is plainly not there; null says nothing of the rest. */
  missing: string | null;
}

export interface Vendor {
  name: string;
  kind: "model" | "command";
  is_usable: boolean;
  /** What to do where it cannot be used. */
  how: string | null;
  /** The name of a loop of it, or what to put in its place. */
  loop: string;
}

export interface Loops {
  default: string;
  loops: readonly LoopLook[];
  vendors: readonly Vendor[];
}

export const listLoops = (): Promise<Loops> => call("GET", urlOf("loops"));
