import { Component } from "preact";
import type { Approvals } from "../../model/approvals";
import { isCutOff } from "../../model/aftermath";
import type { Block } from "../../model/blocks";
import { showJson } from "../../net/json";
import type { Elision, Entry, Part } from "../../net/wire";
import { plural, showBytes, SPEAKERS } from "../../text/format";
import { visibleText } from "../../text/visible";
import { FilePart } from "../part/FilePart";
import { Fold } from "../part/Fold";
import { Markdown } from "../part/Markdown";
import { Time } from "../part/Time";
import { Code } from "../tool/Code";
import { Elided } from "../tool/Elided";
import { ToolCall } from "../tool/ToolCall";
import { ToolResult } from "../tool/ToolResult";
import { Aftermath } from "./Aftermath";
import { Branches } from "./Branches";
import { EditMessage } from "./EditMessage";
import { MessageActions } from "./MessageActions";

export interface MessageProps {
  sessionId: string;
  block: Block;
  isActive: boolean;
  /** What the calls without a result have shown so far, in their order. */
  outputs: readonly (string | null)[];
  approvals: Approvals;
  /** Nothing of its turn came after it. */
  isLast: boolean;
  /** What was said next was not an answer: the turn may have ended before there was one. */
  isUnanswered: boolean;
  isTarget: boolean;
  /** Its turn can be sent again from here, and what was said can be edited. */
  isAtRest: boolean;
}

interface MessageState {
  isEditing: boolean;
}

/** One entry of the transcript; drawn again only when something of it changed. */
export class Message extends Component<MessageProps, MessageState> {
  override state = { isEditing: false };

  override shouldComponentUpdate(next: MessageProps, nextState: MessageState): boolean {
    const { block, isActive, isLast, isUnanswered, outputs, approvals, isTarget, isAtRest } = this.props;
    return (
      nextState.isEditing !== this.state.isEditing ||
      next.block.entry !== block.entry ||
      next.isActive !== isActive ||
      next.isLast !== isLast ||
      next.isUnanswered !== isUnanswered ||
      next.isTarget !== isTarget ||
      next.isAtRest !== isAtRest ||
      next.block.orphans.length !== block.orphans.length ||
      next.block.forks.length !== block.forks.length ||
      next.block.forks.some((fork, index) => fork.siblings !== block.forks[index]?.siblings) ||
      next.block.calls.some((call, index) => call.result !== block.calls[index]?.result) ||
      (block.calls.length > 0 && next.approvals !== approvals) ||
      next.outputs.some((output, index) => output !== outputs[index])
    );
  }

  render(props: MessageProps) {
    const { entry, forks } = props.block;
    const isOwn = entry.type === "message" && entry.role === "user";
    return (
      <div
        class={`row ${entry.type === "message" ? (entry.role ?? "") : "other"}${props.isTarget ? " target" : ""}`}
        data-row={entry.id}
      >
        {forks.map((fork) => (
          <Branches key={fork.id} entry={fork} />
        ))}
        {this.state.isEditing ? (
          <EditMessage
            sessionId={props.sessionId}
            entry={entry}
            onClose={() => this.setState({ isEditing: false })}
          />
        ) : (
          <>
            {draw(props)}
            {(props.isUnanswered || isCutOff(props.block)) && <Aftermath sessionId={props.sessionId} block={props.block} />}
            {entry.type === "message" && (
              <MessageActions
                sessionId={props.sessionId}
                entry={entry}
                {...(isOwn && props.isAtRest && { onEdit: () => this.setState({ isEditing: true }) })}
              />
            )}
          </>
        )}
      </div>
    );
  }
}

function draw(props: MessageProps) {
  const { entry } = props.block;
  switch (entry.type) {
    case "message":
      return <Spoken {...props} />;
    case "compaction":
      return (
        <Aside entry={entry} label="The model reads a summary of what is above" text={entry.summary ?? ""} isMarkdown />
      );
    case "custom":
      return <Aside entry={entry} label={entry.kind ?? "custom"} text={showJson(entry.data ?? null)} />;
    default:
      return <Aside entry={entry} label={entry.type} text={showJson(entry)} />;
  }
}

const ENDINGS = { stopped: "Stopped here", interrupted: "Interrupted here", failed: "Failed here" };

function Spoken({ sessionId, block, isActive, isLast, outputs, approvals }: MessageProps) {
  const { entry, calls, orphans } = block;
  const role = entry.role ?? "assistant";
  const parts = entry.parts ?? [];
  if (role === "system") {
    return <Aside entry={entry} label="System message" text={parts.map((part) => part.text ?? "").join("\n")} isMarkdown />;
  }
  // A call without a word around it is all that there is to read.
  const isAnswer = isLast && calls.length === 1 && !parts.some((part) => part.type === "text");
  let call = 0;
  return (
    <article
      class={`message ${role}`}
      data-testid="message"
      data-role={role}
      data-entry-id={entry.id}
      data-seq={entry.seq}
      data-end={entry.end ?? undefined}
      aria-label={SPEAKERS[role] ?? role}
      tabIndex={-1}
    >
      {parts.map((part, index) => {
        if (part.type === "tool_result") {
          return orphans.includes(part) ? <Orphan key={index} part={part} /> : null;
        }
        if (part.type !== "tool_call") return <MessagePart key={index} part={part} role={role} />;
        const own = calls[call];
        const output = outputs[call++] ?? null;
        if (own === undefined) return null;
        return (
          <ToolCall
            key={index}
            sessionId={sessionId}
            call={own}
            askedAt={entry.seq}
            isActive={isActive}
            output={output}
            approval={approvals.get(part.call_id ?? "") ?? null}
            isAnswer={isAnswer}
          />
        );
      })}
      {entry.end && <p class={`ending ${entry.end}`}>{ENDINGS[entry.end]}</p>}
    </article>
  );
}

function MessagePart({ part, role }: { part: Part; role: string }) {
  if (part.elided && part.href && part.type !== "file") {
    const { href, bytes } = part;
    return (
      <Fold class="tool" summary={
          <>
            <span class="name">A long {part.type}</span> <span class="rest">{bytes !== undefined && showBytes(bytes)}</span>
          </>
        }>
        {() => <Elided href={href} bytes={bytes} name={`${part.type}.txt`} />}
      </Fold>
    );
  }
  switch (part.type) {
    case "text":
      if (role === "assistant") return <Markdown source={part.text ?? ""} />;
      return part.text ? (
        <p class="plain" dir="auto">
          {visibleText(part.text)}
        </p>
      ) : null;
    case "reasoning":
      return part.text ? <Reasoning text={part.text} /> : null;
    case "file":
      return <FilePart part={part} />;
    default:
      return (
        <Fold class="tool" summary={<span class="name">{part.type}</span>}>
          {() => <Code text={showJson(part)} />}
        </Fold>
      );
  }
}

/** A model's reasoning: folded, unless it is still being thought. */
export function Reasoning({ text, isLive = false }: { text: string; isLive?: boolean }) {
  const words = text.trim().split(/\s+/).length;
  return (
    <Fold
      class="plain-fold reasoning"
      testId="reasoning"
      summary={isLive ? "Reasoning…" : <>Reasoning <small>{plural(words, "word")}</small></>}
    >
      {() => (
        <p class="plain" dir="auto">
          {visibleText(text)}
        </p>
      )}
    </Fold>
  );
}

function Orphan({ part }: { part: Part }) {
  return (
    <Fold
      class="tool"
      testId="tool-result"
      summary={<span class="name">{`Result of an earlier call${part.name ? ` of ${part.name}` : ""}`}</span>}
    >
      {() => <ToolResult part={part} />}
    </Fold>
  );
}

interface AsideProps {
  entry: Entry;
  label: string;
  text: string | Elision;
  isMarkdown?: boolean;
}

/** An entry that is no message of the conversation, behind a fold. */
function Aside({ entry, label, text, isMarkdown = false }: AsideProps) {
  return (
    <div class="aside" data-testid="aside" data-entry-id={entry.id} data-seq={entry.seq}>
      <Fold
        class="plain-fold"
        summary={
          <>
            <bdi>{visibleText(label)}</bdi> <Time at={entry.created_at} />
          </>
        }
      >
        {() => {
          if (typeof text !== "string") return <Elided href={text.href} bytes={text.bytes} />;
          return isMarkdown ? <Markdown source={text} /> : <Code text={text} />;
        }}
      </Fold>
    </div>
  );
}
