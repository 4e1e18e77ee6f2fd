import type { LiveMessage as Live } from "../../model/live";
import { LiveMarkdown } from "../part/Markdown";
import { LiveOutput } from "../tool/ToolCall";
import { Reasoning } from "./Message";

/** A message in the making: provisional until its entry takes its place. */
export function LiveMessage({ message }: { message: Live }) {
  return (
    <div class="row assistant live" data-row={message.messageId}>
      <article
        class="message assistant"
        data-testid="message"
        data-role="assistant"
        data-live="true"
        data-entry-id={message.messageId}
        aria-label="Assistant, still writing"
        aria-busy="true"
      >
        {message.parts.map((part, index) => {
          if (part === undefined || part.text === "") return null;
          const isThinking = index === message.parts.length - 1;
          if (part.kind === "reasoning") return <Reasoning key={index} text={part.text} isLive={isThinking} />;
          if (part.kind === "output") return <LiveOutput key={index} text={part.text} />;
          return <LiveMarkdown key={index} source={part.text} />;
        })}
      </article>
    </div>
  );
}
