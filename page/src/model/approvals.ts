/** The tool calls that wait for somebody's yes, as their facts tell. Pure. */
import type { ApprovalLook, Entry } from "../net/wire";

export interface Approval {
  callId: string;
  name: string;
  /** What would be done, as the model asked for it. */
  input: unknown;
  /** The entry that has the whole input, where it is too long to be here. */
  wholeAt: number | null;
  reason: string | null;
  expiresAt: string | null;
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
        wholeAt: null,
        reason: entry.reason ?? null,
        expiresAt: entry.expires_at ?? null,
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

/** Those of calls that are not shown: asked again, or by an agent that an agent started. */
export function approvalsElsewhere(approvals: Approvals, shown: Iterable<string | undefined>): Approval[] {
  const here = new Set(shown);
  return [...approvals.values()].filter(({ callId }) => !here.has(callId));
}

/** The approvals as a look has them; the same ones if they are. */
export function approvalsOf(looks: readonly ApprovalLook[], known: Approvals): Approvals {
  if (looks.length === known.size && looks.every(({ call_id }) => known.has(call_id))) return known;
  return new Map(
    looks.map((look) => [
      look.call_id,
      {
        callId: look.call_id,
        name: look.name,
        input: look.arguments,
        wholeAt: look.elided ? look.seq : null,
        reason: look.reason,
        expiresAt: look.expires_at,
      },
    ]),
  );
}
