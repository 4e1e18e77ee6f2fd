import { useLayoutEffect, useRef } from "preact/hooks";
import type { Call } from "../blocks";
import { showBytes } from "../format";
import { showJson } from "../json";
import type { Part } from "../wire";
import { Elided } from "./Elided";
import { Fold } from "./Fold";

interface ToolCallProps {
  call: Call;
  isActive: boolean;
  output: string | null;
  /** Its output is what the turn has come to so far: shown without being asked for. */
  isAnswer: boolean;
}

type CallState = "running" | "done" | "error" | "interrupted" | "unanswered";

function stateOf({ result }: Call, isActive: boolean): CallState {
  if (result === null) return isActive ? "running" : "unanswered";
  if (result.interrupted) return "interrupted";
  return result.is_error ? "error" : "done";
}

const WORDS: Record<CallState, string> = {
  running: "running…",
  done: "",
  error: "error",
  interrupted: "interrupted",
  unanswered: "no result",
};

export function ToolCall({ call, isActive, output, isAnswer }: ToolCallProps) {
  const state = stateOf(call, isActive);
  const { call: asked, result } = call;
  return (
    <Fold
      class={`tool ${state}`}
      testId="tool-call"
      isOpen={isAnswer}
      data={{ "data-state": state, "data-call-id": asked.call_id }}
      summary={
        <>
          <span class={`dot ${state}`} aria-hidden="true" />
          <span class="name">{asked.name ?? "tool"}</span>
          <span class="preview">{preview(asked)}</span>
          <span class="rest">{WORDS[state]}</span>
        </>
      }
    >
      {() => (
        <>
          {isAnswer ? (
            <Fold class="reasoning" testId="tool-input-fold" summary="Input">
              {() => <Input call={asked} />}
            </Fold>
          ) : (
            <>
              <h3>Input</h3>
              <Input call={asked} />
              <h3>Output</h3>
            </>
          )}
          <div data-testid="tool-output">
            {result !== null && <ToolResult part={result} />}
            {result === null && isActive && <LiveOutput text={output ?? ""} />}
            {result === null && !isActive && <p class="hint">There is no result.</p>}
          </div>
        </>
      )}
    </Fold>
  );
}

function Input({ call }: { call: Part }) {
  return (
    <div data-testid="tool-input">
      {call.elided && call.href ? (
        <Elided href={call.href} bytes={call.bytes} />
      ) : (
        <pre>{showJson(call.arguments ?? null)}</pre>
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
  if (text === "") return <p class="hint">None yet.</p>;
  return (
    <pre
      ref={view}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        isFollowing.current = scrollHeight - scrollTop - clientHeight < 24;
      }}
    >
      {text.length > LIVE_SHOWN ? `…${text.slice(-LIVE_SHOWN)}` : text}
    </pre>
  );
}

export function ToolResult({ part }: { part: Part }) {
  const parts = part.parts ?? [];
  if (part.elided && part.href && parts.length === 0) return <Elided href={part.href} bytes={part.bytes} />;
  if (parts.every((piece) => piece.type === "text" && !piece.text && !piece.elided)) return <p class="hint">Empty.</p>;
  return (
    <>
      {parts.map((piece, index) => (
        <ResultPart key={index} part={piece} />
      ))}
    </>
  );
}

function ResultPart({ part }: { part: Part }) {
  if (part.type === "file") return <FilePart part={part} />;
  if (part.elided && part.href) return <Elided href={part.href} bytes={part.bytes} />;
  if (part.type === "text") return part.text ? <pre>{part.text}</pre> : null;
  return <pre>{showJson(part)}</pre>;
}

const SHOWN_IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function FilePart({ part }: { part: Part }) {
  const name = part.name ?? part.media_type ?? part.type;
  const address = part.elided ? part.href : `data:${part.media_type};base64,${part.data}`;
  if ((part.elided || part.data) && SHOWN_IMAGES.has(part.media_type ?? "")) {
    return <img class="file" src={address} alt={name} />;
  }
  if (part.elided && part.href) {
    return (
      <a class="file" href={part.href} download={name}>
        {`${name} · ${showBytes(part.bytes ?? 0)}`}
      </a>
    );
  }
  if (part.url && /^https?:\/\//i.test(part.url)) {
    return (
      <a class="file" href={part.url} target="_blank" rel="noopener noreferrer nofollow">
        {name}
      </a>
    );
  }
  const size = part.data ? ` · ${showBytes(Math.floor((part.data.length * 3) / 4))}` : "";
  return <span class="file">{`${name}${size}`}</span>;
}

/** The first words of a call's arguments. */
function preview(call: Part): string {
  if (call.elided) return showBytes(call.bytes ?? 0);
  const value = call.arguments;
  const text =
    typeof value === "object" && value !== null && Object.keys(value).length === 1
      ? showJson(Object.values(value)[0])
      : showJson(value ?? "");
  return text.slice(0, 300).replace(/\s+/g, " ");
}
