import { useLayoutEffect, useRef } from "preact/hooks";
import type { Approval } from "../../model/approvals";
import type { Call } from "../../model/blocks";
import { showJson } from "../../net/json";
import type { Part } from "../../net/wire";
import { showBytes, showSeconds } from "../../text/format";
import { visibleCode } from "../../text/visible";
import { Fold } from "../part/Fold";
import { ApprovalForm } from "./ApprovalForm";
import { Code } from "./Code";
import { Elided } from "./Elided";
import { ToolResult } from "./ToolResult";
import { Verdict } from "./Verdict";

interface ToolCallProps {
  sessionId: string;
  call: Call;
  /** The `seq` of the entry that asked for it. */
  askedAt: number;
  isActive: boolean;
  output: string | null;
  approval: Approval | null;
  /** Its output is what the turn has come to so far: shown without being asked for. */
  isAnswer: boolean;
}

type CallState = "running" | "waiting" | "done" | "error" | "interrupted" | "unanswered";

function stateOf({ call: { result }, isActive, approval }: ToolCallProps): CallState {
  if (result === null && approval !== null) return "waiting";
  if (result === null) return isActive ? "running" : "unanswered";
  if (result.interrupted) return "interrupted";
  return result.is_error ? "error" : "done";
}

const WORDS: Record<CallState, string> = {
  running: "running",
  waiting: "needs your approval",
  done: "done",
  error: "error",
  interrupted: "interrupted",
  unanswered: "no result",
};

/** A tool call as a card: what was asked, and what came of it, raw and in full. */
export function ToolCall(props: ToolCallProps) {
  const { call, askedAt, isActive, output, isAnswer, approval, sessionId } = props;
  const state = stateOf(props);
  const { call: asked, result, resultEntry } = call;
  const verdict = <Verdict sessionId={sessionId} call={asked} askedAt={askedAt} answeredAt={resultEntry?.seq ?? null} />;
  return (
    <Fold
      class={`tool ${state}`}
      testId="tool-call"
      isOpen={isAnswer || state === "waiting"}
      data={{ "data-state": state, "data-call-id": asked.call_id }}
      summary={
        <>
          <span class={`dot ${state}`} aria-hidden="true" />
          <bdi class="name">{visibleCode(asked.name ?? "tool")}</bdi>
          <bdi class="asked">{preview(asked)}</bdi>
          <span class="rest">{state === "done" ? took(result) || <span class="unseen">done</span> : isRefused(result) ? "refused" : WORDS[state]}</span>
        </>
      }
    >
      {() =>
        approval !== null && result === null ? (
          <ApprovalForm sessionId={sessionId} approval={approval} />
        ) : (
          <>
            {isAnswer ? (
              <Fold class="plain-fold" testId="tool-input-fold" summary="Input">
                {() => (
                  <>
                    <Input call={asked} />
                    {verdict}
                  </>
                )}
              </Fold>
            ) : (
              <>
                <p class="label">Input</p>
                <Input call={asked} />
                {verdict}
                <p class="label">Output</p>
              </>
            )}
            <div data-testid="tool-output">
              {result !== null && <ToolResult part={result} />}
              {result === null && isActive && <LiveOutput text={output ?? ""} />}
              {result === null && !isActive && <p class="hint">There is no result.</p>}
            </div>
          </>
        )
      }
    </Fold>
  );
}

function Input({ call }: { call: Part }) {
  return (
    <div data-testid="tool-input">
      {call.elided && call.href ? (
        <Elided href={call.href} bytes={call.bytes} name={`${call.name ?? "call"}-input.json`} />
      ) : (
        <Code text={showJson(call.arguments ?? null)} label="Copy the input" />
      )}
    </div>
  );
}

/** The end of an output that still grows; the whole of it is there when it has ended. */
const LIVE_SHOWN = 20_000;

export function LiveOutput({ text }: { text: string }) {
  const view = useRef<HTMLPreElement>(null);
  const isFollowing = useRef(true);
  useLayoutEffect(() => {
    if (view.current !== null && isFollowing.current) view.current.scrollTop = view.current.scrollHeight;
  }, [text]);
  if (text === "") return <p class="hint">Nothing yet.</p>;
  return (
    <pre
      ref={view}
      dir="ltr"
      tabIndex={0}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        isFollowing.current = scrollHeight - scrollTop - clientHeight < 24;
      }}
    >
      {visibleCode(text.length > LIVE_SHOWN ? `…${text.slice(-LIVE_SHOWN)}` : text)}
    </pre>
  );
}

/** The first words of a call's arguments. */
function preview(call: Part): string {
  if (call.elided) return showBytes(call.bytes ?? 0);
  const value = call.arguments;
  if (value === null || value === undefined) return "";
  const text =
    typeof value === "object" && Object.keys(value).length === 1
      ? showJson(Object.values(value)[0])
      : JSON.stringify(value);
  return visibleCode(text.slice(0, 300).replace(/\s+/g, " "));
}

/** Nothing ran: a hook or a person refused it, as the server says to the model. */
const isRefused = (result: Part | null): boolean => result?.is_error === true && /^refused\b/.test(result.parts?.[0]?.text ?? "");

/** How long it took, where the tool says so. */
function took(result: Part | null): string {
  const { provider } = (result ?? {}) as { provider?: { seconds?: unknown } };
  const seconds = provider?.seconds;
  return typeof seconds === "number" && seconds >= 1 ? showSeconds(seconds) : "";
}
