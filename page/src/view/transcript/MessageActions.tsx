import type { Entry } from "../../net/wire";
import { hrefOfEntry } from "../../state/route";
import { Copy } from "../part/Copy";
import { Icon } from "../part/Icon";
import { Time } from "../part/Time";
import { forking } from "../session/ForkDialog";

interface MessageActionsProps {
  sessionId: string;
  entry: Entry;
  onEdit?: () => void;
}

const textOf = (entry: Entry): string =>
  (entry.parts ?? []).map((part) => (part.type === "text" ? (part.text ?? "") : "")).filter(Boolean).join("\n\n");

/** What can be done with a message: shown when it is pointed at or has the focus. */
export function MessageActions({ sessionId, entry, onEdit }: MessageActionsProps) {
  const hasText = textOf(entry) !== "";
  return (
    <div class="message-actions">
      <Time at={entry.created_at} />
      {hasText && <Copy label="Copy the message" testId="copy-message" text={() => textOf(entry)} />}
      {onEdit && (
        <button type="button" class="tiny" aria-label="Edit and send again" title="Edit and send again" data-testid="edit-message" onClick={onEdit}>
          <Icon name="edit" size={14} />
        </button>
      )}
      <button
        type="button"
        class="tiny"
        aria-label="Fork here: a new session that ends with this message"
        title="Fork here"
        data-testid="fork-here"
        onClick={() => (forking.value = { sessionId, entryId: entry.id })}
      >
        <Icon name="fork" size={14} />
      </button>
      <a class="tiny" href={hrefOfEntry(sessionId, entry.id)} aria-label="Link to this message" title="Link to this message" data-testid="link-entry">
        <Icon name="link" size={14} />
      </a>
    </div>
  );
}
