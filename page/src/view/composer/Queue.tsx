import { useEffect, useRef, useState } from "preact/hooks";
import type { SessionState } from "../../model/session";
import { discardMessage, editQueued, goOn } from "../../net/api";
import { wholePart } from "../../net/whole";
import type { Part, Pending } from "../../net/wire";
import { loadDraft, saveDraft } from "../../state/draft";
import { attempt } from "../../state/notice";
import { plural } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

/** The accepted messages whose turn has not come: to be changed or discarded until they are taken. */
export function Queue({ state }: { state: SessionState }) {
  const { queued, status, sessionId } = state;
  if (queued.length === 0) return null;
  const isHeld = status !== "running" && status !== "waiting";
  return (
    <section class="queue" data-testid="queue" aria-label="Pending messages">
      <header>
        <span>
          {plural(queued.length, "message")} pending
          {isHeld && ", held: the turn before did not complete"}
        </span>
        {isHeld && status !== "unrecoverable" && (
          <button type="button" data-testid="go-on" onClick={() => void attempt(() => goOn(sessionId))}>
            Run {queued.length === 1 ? "it" : "them"}
          </button>
        )}
      </header>
      <ol>
        {queued.map((pending) => (
          <QueuedMessage key={pending.message_id} sessionId={sessionId} pending={pending} />
        ))}
      </ol>
    </section>
  );
}

function QueuedMessage({ sessionId, pending }: { sessionId: string; pending: Pending }) {
  const name = `${sessionId}/queue/${pending.message_id}`;
  const [text, setText] = useState<string | null>(() => loadDraft(name).text || null);
  const field = useRef<HTMLTextAreaElement>(null);
  const isEditing = text !== null;
  useEffect(() => field.current?.focus(), [isEditing]);
  const change = (changed: string | null): void => {
    setText(changed);
    saveDraft(name, changed === null ? null : { text: changed, key: null });
  };
  const save = async (): Promise<void> => {
    if (text === null || text.trim() === "") return;
    const isDone = await attempt(async () => {
      const files = await Promise.all(pending.parts.filter((part) => part.type === "file").map(wholePart));
      await editQueued(sessionId, pending.message_id, [{ type: "text", text }, ...files]);
    });
    if (isDone) change(null);
  };

  if (text !== null) {
    return (
      <li data-testid="queued" data-message-id={pending.message_id} class="editing">
        <textarea
          aria-label="The pending message"
          dir="auto"
          rows={Math.min(text.split("\n").length + 1, 8)}
          value={text}
          data-testid="queued-field"
          ref={field}
          onInput={(event) => change(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") change(null);
            if (event.key === "Enter" && !event.shiftKey) {
              event.preventDefault();
              void save();
            }
          }}
        />
        <div class="actions">
          <button type="button" onClick={() => change(null)}>
            Cancel
          </button>
          <button type="button" class="primary" data-testid="queued-save" onClick={() => void save()}>
            Save
          </button>
        </div>
      </li>
    );
  }
  return (
    <li data-testid="queued" data-message-id={pending.message_id}>
      <bdi>{visibleText(shownText(pending.parts))}</bdi>
      <button
        type="button"
        class="tiny"
        aria-label="Edit this message"
        title="Edit"
        data-testid="queued-edit"
        onClick={() => void attempt(async () => change(ownText(await Promise.all(pending.parts.map(wholeText)))))}
      >
        <Icon name="edit" size={14} />
      </button>
      <button
        type="button"
        class="tiny"
        aria-label="Discard this message"
        title="Discard"
        data-testid="queued-discard"
        onClick={() => void attempt(() => discardMessage(sessionId, pending.message_id))}
      >
        <Icon name="cross" size={14} />
      </button>
    </li>
  );
}

const wholeText = (part: Part): Part | Promise<Part> => (part.type === "text" ? wholePart(part) : part);

const ownText = (parts: readonly Part[]): string =>
  parts.filter((part) => part.type === "text").map((part) => part.text ?? "").join("\n");

const shownText = (parts: readonly Part[]): string =>
  parts.map((part) => part.text ?? part.name ?? (part.elided ? `a long ${part.type}` : part.type)).join(" ");
