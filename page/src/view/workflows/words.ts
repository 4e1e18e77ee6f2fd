/** What workflows and their steps are called on the page. */
import type { Step, StepStatus, WorkflowStatus } from "../../net/around";
import type { Tone } from "../place/Pill";

export const TONES: Record<WorkflowStatus, Tone> = {
  running: "busy",
  waiting: "busy",
  paused: "calm",
  cancelling: "busy",
  completed: "good",
  failed: "bad",
  cancelled: "calm",
  unrecoverable: "bad",
};

export const workflowWords = (status: WorkflowStatus): string => (status === "waiting" ? "needs approval" : status);

export const STEP_TONES: Record<StepStatus, Tone> = {
  pending: "calm",
  waiting: "busy",
  running: "busy",
  retrying: "busy",
  completed: "good",
  failed: "bad",
  skipped: "calm",
};

/** How a step stands, as short as a box of the graph has room for. */
export function stepWords(step: Step): string {
  const { status, attempts, most_attempts: most, reason } = step;
  const count = attempts.length;
  switch (status) {
    case "waiting":
      return "needs approval";
    case "pending":
      return step.undoes.length > 0 ? "only on failure" : "pending";
    case "running":
      return most > 1 ? `attempt ${count} of ${Math.max(most, count)}` : "running";
    case "retrying":
      return `failed, tried again soon`;
    case "completed":
      return count > 1 ? `completed, attempt ${count}` : "completed";
    case "failed":
      return reason === null || reason === "failed" ? "failed" : reasonWords(reason);
    case "skipped":
      return "skipped";
  }
}

export const reasonWords = (reason: string): string => reason.replaceAll("_", " ");

export const isOver = (status: WorkflowStatus): boolean => status === "completed" || status === "failed" || status === "cancelled";
