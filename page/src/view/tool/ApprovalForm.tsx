import { useState } from "preact/hooks";
import type { Approval } from "../../model/approvals";
import { type Answer, answerApproval, sessionUrl } from "../../net/api";
import { parseJson, showJson } from "../../net/json";
import type { Elision } from "../../net/wire";
import { attempt } from "../../state/notice";
import { visibleText } from "../../text/visible";
import { Time } from "../part/Time";
import { Code } from "./Code";
import { Elided } from "./Elided";

interface ApprovalFormProps {
  sessionId: string;
  approval: Approval;
}

/** Where the input is whole, if it is too long to be here. */
function hrefOfWhole(sessionId: string, { input, wholeAt }: Approval): string | null {
  if (wholeAt !== null) return sessionUrl(sessionId, `/entries/${wholeAt}/fields/arguments`).href;
  const elision = input as Partial<Elision> | null;
  return typeof elision === "object" && elision?.elided === true ? (elision.href ?? null) : null;
}

/** What would be done, in full, and the answer: yes, yes with other input, or no with a reason. */
export function ApprovalForm({ sessionId, approval }: ApprovalFormProps) {
  const [input, setInput] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [isWrong, setWrong] = useState(false);
  const href = hrefOfWhole(sessionId, approval);

  const answer = async (isApproved: boolean): Promise<void> => {
    const said: Answer = { approve: isApproved };
    if (reason.trim() !== "") said.reason = reason.trim();
    if (isApproved && input !== null) {
      said.arguments = read(input);
      setWrong(said.arguments === undefined);
      if (said.arguments === undefined) return;
    }
    setBusy(true);
    await attempt(async () => {
      await answerApproval(sessionId, approval.callId, said);
    });
    setBusy(false);
  };

  return (
    <div class="approval" data-testid="approval">
      {approval.reason && <p>{visibleText(approval.reason)}</p>}
      <p class="label">It would run with this input</p>
      {input !== null ? (
        <>
          <textarea
            class="code-field"
            aria-label="The input to run with, as JSON"
            aria-invalid={isWrong}
            rows={Math.min(input.split("\n").length + 1, 16)}
            value={input}
            data-testid="approval-input"
            onInput={(event) => {
              setInput(event.currentTarget.value);
              setWrong(false);
            }}
          />
          {isWrong && (
            <p class="problem" role="alert">
              This is not JSON; nothing was sent.
            </p>
          )}
        </>
      ) : href !== null ? (
        <Elided href={href} bytes={undefined} name="input.json" />
      ) : (
        <Code text={showJson(approval.input)} label="Copy the input" />
      )}
      {approval.expiresAt !== null && (
        <p class="hint">
          Without an answer it counts as denied from <Time at={approval.expiresAt} /> on.
        </p>
      )}
      <label class="reason">
        <span class="unseen">Reason</span>
        <input
          placeholder="A reason, for the model and the record (optional)"
          value={reason}
          data-testid="approval-reason"
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </label>
      <div class="actions">
        {href === null && (
          <button
            type="button"
            class="quiet"
            data-testid="approval-edit"
            onClick={() => {
              setInput(input === null ? JSON.stringify(approval.input, null, 2) : null);
              setWrong(false);
            }}
          >
            {input === null ? "Change the input" : "As it was"}
          </button>
        )}
        <span class="space" />
        <button type="button" class="danger" disabled={isBusy} data-testid="deny" onClick={() => void answer(false)}>
          Deny
        </button>
        <button type="button" class="primary" disabled={isBusy} data-testid="approve" onClick={() => void answer(true)}>
          {input === null ? "Approve" : "Approve with this input"}
        </button>
      </div>
    </div>
  );
}

/** Undefined where it is no JSON. */
function read(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
