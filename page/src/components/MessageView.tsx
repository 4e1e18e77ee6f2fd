import { Component } from "preact";
import type { Block } from "../blocks";
import { showFullTime } from "../format";
import { showJson } from "../json";
import type { Elision, Entry, Part } from "../wire";
import { Elided } from "./Elided";
import { Fold } from "./Fold";
import { Markdown } from "./Markdown";
import { FilePart, ToolCall, ToolResult } from "./ToolCall";

interface MessageProps {
  block: Block;
  isActive: boolean;
  /** What the calls without a result have shown so far, in their order. */
  outputs: readonly (string | null)[];
  /** Nothing of its turn came after it. */
  isLast: boolean;
}

/** One entry of the transcript; drawn again only when something of it changed. */
export class MessageView extends Component<MessageProps> {
  override shouldComponentUpdate(next: MessageProps): boolean {
    const { block, isActive, isLast, outputs } = this.props;
    return (
      next.block.entry !== block.entry ||
      next.isActive !== isActive ||
      next.isLast !== isLast ||
      next.block.orphans.length !== block.orphans.length ||
      next.block.calls.some((call, index) => call.result !== block.calls[index]?.result) ||
      next.outputs.some((output, index) => output !== outputs[index])
    );
  }

  render(props: MessageProps) {
    const { entry } = props.block;
    switch (entry.type) {
      case "message":
        return <Message {...props} />;
      case "compaction":
        return <Aside entry={entry} label="The model reads a summary of what is above" text={entry.summary ?? ""} />;
      case "custom":
        return <Aside entry={entry} label={entry.kind ?? "custom"} text={showJson(entry.data ?? null)} isCode />;
      default:
        return <Aside entry={entry} label={entry.type} text={showJson(entry)} isCode />;
    }
  }
}

const ENDINGS = { stopped: "stopped here", interrupted: "interrupted here", failed: "failed here" };

function Message({ block, isActive, isLast, outputs }: MessageProps) {
  const { entry, calls, orphans } = block;
  const role = entry.role ?? "assistant";
  if (role === "system") {
    return <Aside entry={entry} label="System message" text={(entry.parts ?? []).map((part) => part.text ?? "").join("\n")} />;
  }
  // A call without a word around it is all that there is to read.
  const isAnswer = isLast && calls.length === 1 && !(entry.parts ?? []).some((part) => part.type === "text");
  let call = 0;
  return (
    <article
      class={`message ${role}`}
      data-testid="message"
      data-role={role}
      data-entry-id={entry.id}
      data-seq={entry.seq}
      data-end={entry.end ?? undefined}
      aria-label={role === "user" ? "You" : role}
      title={showFullTime(entry.created_at)}
    >
      {(entry.parts ?? []).map((part, index) => {
        if (part.type === "tool_result") {
          return orphans.includes(part) ? <Orphan key={index} part={part} /> : null;
        }
        if (part.type !== "tool_call") return <MessagePart key={index} part={part} role={role} />;
        const own = calls[call];
        const output = outputs[call++] ?? null;
        return own && <ToolCall key={index} call={own} isActive={isActive} output={output} isAnswer={isAnswer} />;
      })}
      {entry.end && <p class={`ending ${entry.end}`}>{ENDINGS[entry.end]}</p>}
    </article>
  );
}

function MessagePart({ part, role }: { part: Part; role: string }) {
  if (part.elided && part.href && part.type !== "file") {
    const { href, bytes } = part;
    return (
      <Fold class="tool" summary={`A long ${part.type} part`}>
        {() => <Elided href={href} bytes={bytes} />}
      </Fold>
    );
  }
  switch (part.type) {
    case "text":
      return role === "user" ? <p class="plain">{part.text}</p> : <Markdown source={part.text ?? ""} />;
    case "reasoning":
      return part.text ? <Reasoning text={part.text} /> : null;
    case "file":
      return <FilePart part={part} />;
    default:
      return (
        <Fold class="tool" summary={part.type}>
          {() => <pre>{showJson(part)}</pre>}
        </Fold>
      );
  }
}

export function Reasoning({ text }: { text: string }) {
  return (
    <Fold class="reasoning" testId="reasoning" summary="Reasoning">
      {() => <p class="plain">{text}</p>}
    </Fold>
  );
}

function Orphan({ part }: { part: Part }) {
  return (
    <Fold class="tool" testId="tool-result" summary={`Result of an earlier call${part.name ? ` of ${part.name}` : ""}`}>
      {() => <ToolResult part={part} />}
    </Fold>
  );
}

/** An entry that is no message of the conversation, behind a fold. */
interface AsideProps {
  entry: Entry;
  label: string;
  text: string | Elision;
  isCode?: boolean;
}

function Aside({ entry, label, text, isCode }: AsideProps) {
  return (
    <div class="aside" data-testid="aside" data-entry-id={entry.id} data-seq={entry.seq} data-type={entry.type}>
      <Fold class="reasoning" summary={label}>
        {() => {
          if (typeof text !== "string") return <Elided href={text.href} bytes={text.bytes} />;
          return isCode ? <pre>{text}</pre> : <p class="plain">{text}</p>;
        }}
      </Fold>
    </div>
  );
}
