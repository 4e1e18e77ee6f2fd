import type { LiveMessage } from "../live";
import { Markdown } from "./Markdown";
import { Reasoning } from "./MessageView";
import { LiveOutput } from "./ToolCall";

/** A message in the making: provisional until its entry takes its place. */
export function LiveMessageView({ message }: { message: LiveMessage }) {
  return (
    <article
      class="message assistant live"
      data-testid="message"
      data-role="assistant"
      data-live="true"
      data-entry-id={message.messageId}
      aria-label="assistant, still writing"
    >
      {message.parts.map((part, index) => {
        if (part === undefined || part.text === "") return null;
        if (part.kind === "reasoning") return <Reasoning key={index} text={part.text} />;
        if (part.kind === "output") return <LiveOutput key={index} text={part.text} />;
        return <Markdown key={index} source={part.text} />;
      })}
    </article>
  );
}
