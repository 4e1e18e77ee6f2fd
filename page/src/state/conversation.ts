/** What a person does in a conversation that takes more than one verb. */
import * as api from "../net/api";
import type { Entry, Part, Policy } from "../net/wire";
import { dismissError } from "./notice";
import { reading } from "./reading";
import { sent, session } from "./session";

/** Makes the branch that is read the active one, where one is. */
export async function settleBranch(sessionId: string): Promise<void> {
  const other = reading.peek();
  if (other === null || other.sessionId !== sessionId) return;
  await api.branchTo(sessionId, other.path.leafId);
  reading.value = null;
}

/** Sends into the branch that is shown; the same key is accepted once. */
export async function send(sessionId: string, parts: readonly Part[], key: string, policy: Policy): Promise<void> {
  await settleBranch(sessionId);
  await api.sendMessage(sessionId, parts, key, policy);
  dismissError();
  sent.value += 1;
}

/** Says something else in the place of an earlier message: a branch beside it. */
export async function sendInstead(
  sessionId: string,
  entry: Entry,
  parts: readonly Part[],
  key: string,
): Promise<void> {
  const parentId = entry.parent_id ?? null;
  reading.value = null;
  if (session.peek()?.path.leafId !== parentId) await api.branchTo(sessionId, parentId);
  await api.sendMessage(sessionId, parts, key);
  sent.value += 1;
}
