import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem, sendMessage, stopTurn } from "../api";
import { type Draft, loadDraft, newKey, saveDraft } from "../draft";
import { attempt, report, sent } from "../store";
import type { SessionState } from "../session";

const LONGEST_DELAY_MS = 5_000;

type Sending = "no" | "sending" | "retrying";

export function Composer({ state }: { state: SessionState }) {
  const { sessionId, turn, status } = state;
  const [draft, setDraft] = useState<Draft>(() => loadDraft(sessionId));
  const [sending, setSending] = useState<Sending>("no");
  const abandon = useRef<(() => void) | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);

  const keep = (changed: Draft): void => {
    setDraft(changed);
    saveDraft(sessionId, changed);
  };

  useLayoutEffect(() => {
    const area = field.current;
    if (area === null) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  }, [draft.text]);
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) field.current?.focus();
    return () => abandon.current?.();
  }, []);

  const send = async (): Promise<void> => {
    if (draft.text.trim() === "" || sending !== "no") return;
    const key = draft.key ?? newKey();
    const text = draft.text;
    keep({ text, key });
    let isAbandoned = false;
    const abandoned = new Promise<void>((resolve) => {
      abandon.current = () => {
        isAbandoned = true;
        resolve();
      };
    });
    setSending("sending");
    for (let delayMs = 400; !isAbandoned; delayMs = Math.min(delayMs * 2, LONGEST_DELAY_MS)) {
      try {
        await sendMessage(sessionId, text, key);
        if (isAbandoned) saveDraftIfSent(sessionId, key);
        else {
          keep({ text: "", key: null });
          sent.value += 1;
        }
        break;
      } catch (error) {
        if (isAbandoned) break;
        if (!(error instanceof Problem && error.isUnreached)) {
          report(error);
          break;
        }
        setSending("retrying");
        await Promise.race([abandoned, new Promise((resolve) => setTimeout(resolve, delayMs))]);
      }
    }
    if (!isAbandoned) setSending("no");
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };

  const isRunning = status === "running" && turn !== null;
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {sending === "retrying" && (
        <p class="hint" role="status" data-testid="retrying">
          Not sent yet: the server cannot be reached. Trying again…{" "}
          <button
            type="button"
            class="link"
            onClick={() => {
              abandon.current?.();
              setSending("no");
            }}
          >
            Back to editing
          </button>
        </p>
      )}
      <div class="field">
        <textarea
          ref={field}
          rows={1}
          data-testid="composer"
          aria-label="Message"
          placeholder={isRunning ? "Write; it will queue behind this turn" : "Write a message"}
          value={draft.text}
          readOnly={sending !== "no"}
          onInput={(event) => keep({ text: event.currentTarget.value, key: null })}
          onKeyDown={onKeyDown}
        />
        {isRunning && (
          <button
            type="button"
            class="stop"
            data-testid="stop"
            data-turn-id={turn.turn_id}
            aria-label="Stop this turn"
            title="Stop this turn"
            onClick={() => void attempt(() => stopTurn(sessionId, turn.turn_id))}
          >
            <span aria-hidden="true" />
          </button>
        )}
        <button
          type="submit"
          class="send"
          data-testid="send"
          aria-label={isRunning ? "Queue this message" : "Send"}
          title={isRunning ? "Queue this message" : "Send (Enter; Shift+Enter for a new line)"}
          disabled={draft.text.trim() === "" || sending !== "no"}
        >
          <span aria-hidden="true">↑</span>
        </button>
      </div>
    </form>
  );
}

/** The message arrived after the person had left: their draft goes, unless they changed it. */
function saveDraftIfSent(sessionId: string, key: string): void {
  if (loadDraft(sessionId).key === key) saveDraft(sessionId, { text: "", key: null });
}
