/** The tool calls that wait for somebody's yes, as their facts tell. Pure. */
import type { Entry } from "../net/wire";

export interface Approval {
  callId: string;
  name: string;
  /** What would be done, as the model asked for it. */
  input: unknown;
  requestedAt: string;
}

export type Approvals = ReadonlyMap<string, Approval>;

export const NO_APPROVALS: Approvals = new Map();

/** The approvals after one more entry; the same ones if it is no fact of theirs. */
export function followApprovals(approvals: Approvals, entry: Entry): Approvals {
  const callId = entry.call_id ?? "";
  switch (entry.type) {
    case "approval_requested": {
      const asked = {
        callId,
        name: entry.name ?? "",
        input: entry.arguments ?? null,
        requestedAt: entry.created_at,
      };
      return new Map([...approvals, [callId, asked]]);
    }
    case "approval_answered":
      return new Map([...approvals].filter(([id]) => id !== callId));
    case "turn_ended":
      return approvals.size === 0 ? approvals : NO_APPROVALS;
    default:
      return approvals;
  }
}
