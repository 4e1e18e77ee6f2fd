import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { wholePart } from "../../net/whole";
import type { Entry, Part } from "../../net/wire";
import { sendInstead } from "../../state/conversation";
import { loadDraft, newKey, saveDraft } from "../../state/draft";
import { attempt } from "../../state/notice";
import { plural } from "../../text/format";

const textOf = (texts: readonly Part[]): string => texts.map((part) => part.text ?? "").join("\n");

interface EditMessageProps {
  sessionId: string;
  entry: Entry;
  onClose(): void;
}

/** An earlier message, to be said otherwise: the new one becomes a branch, the old one stays. */
export function EditMessage({ sessionId, entry, onClose }: EditMessageProps) {
  const name = `${sessionId}/${entry.id}`;
  const parts = entry.parts ?? [];
  const texts = parts.filter((part) => part.type === "text");
  const files = parts.filter((part) => part.type === "file");
  const [text, setText] = useState(() => loadDraft(name).text || textOf(texts));
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(text.length, text.length);
    if (text !== "" || !texts.some((part) => part.elided)) return;
    setBusy(true);
    void attempt(async () => setText(textOf(await Promise.all(texts.map(wholePart))))).then(() => setBusy(false));
  }, []);
  useLayoutEffect(() => {
    if (field.current === null) return;
    field.current.style.height = "auto";
    field.current.style.height = `${field.current.scrollHeight + 2}px`;
  }, [text]);

  const close = (): void => {
    saveDraft(name, null);
    onClose();
  };
  const submit = async (): Promise<void> => {
    if (isBusy || text.trim() === "") return;
    setBusy(true);
    const key = loadDraft(name).key ?? newKey();
    saveDraft(name, { text, key });
    const isDone = await attempt(async () => {
      const whole = await Promise.all(files.map(wholePart));
      await sendInstead(sessionId, entry, [{ type: "text", text }, ...whole], key);
    });
    setBusy(false);
    if (isDone) close();
  };

  return (
    <form
      class="edit-message"
      data-testid="edit-form"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <textarea
        ref={field}
        aria-label="The message, said otherwise"
        dir="auto"
        value={text}
        data-testid="edit-field"
        onInput={(event) => {
          setText(event.currentTarget.value);
          saveDraft(name, { text: event.currentTarget.value, key: null });
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") close();
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit();
        }}
      />
      <p class="hint">
        It becomes a branch of its own; what is here now stays beside it.
        {files.length > 0 && ` ${plural(files.length, "file")} of it ${files.length === 1 ? "goes" : "go"} along.`}
      </p>
      <div class="actions">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={isBusy || text.trim() === ""} data-testid="edit-send">
          Send as a branch
        </button>
      </div>
    </form>
  );
}
