import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { SessionState } from "../../model/session";
import { stopTurn } from "../../net/api";
import { Problem } from "../../net/problem";
import type { Part, Policy } from "../../net/wire";
import { send } from "../../state/conversation";
import { type Draft, loadDraft, loadFiles, newKey, NO_DRAFT, saveDraft, saveFiles } from "../../state/draft";
import { attempt, report, say } from "../../state/notice";
import { Icon } from "../part/Icon";
import { Attachments, leftOutWords, readFiles } from "./Attachments";
import { useDrops } from "./drops";

const LONGEST_DELAY_MS = 5_000;

/** The loops that said that they cannot be steered; only the loop itself knows. */
const unsteerable = signal<ReadonlySet<string>>(new Set());

/** The session that was written to last. */
let writtenTo: string | null = null;

type Sending = "no" | "sending" | "retrying";

/** Where a message is written; it is kept until the server has it. */
export function Composer({ state }: { state: SessionState }) {
  const { sessionId, turn, status } = state;
  const [draft, setDraft] = useState<Draft>(() => loadDraft(sessionId));
  const [files, setFiles] = useState<readonly Part[]>([]);
  /** The files as they are now: reading takes its time, and more may be attached meanwhile. */
  const attached = useRef<readonly Part[]>([]);
  const reads = useRef<Promise<unknown>>(Promise.resolve());
  const [reading, setReading] = useState(0);
  const [sending, setSending] = useState<Sending>("no");
  const abandon = useRef<(() => void) | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);

  const keep = (changed: Draft): void => {
    setDraft(changed);
    saveDraft(sessionId, changed);
  };
  const showFiles = (changed: readonly Part[]): void => {
    attached.current = changed;
    setFiles(changed);
  };
  const keepFiles = (changed: readonly Part[]): void => {
    showFiles(changed);
    void saveFiles(sessionId, changed);
    setDraft((now) => {
      if (now.key === null) return now;
      // It is no longer what was sent.
      const another = { ...now, key: null };
      saveDraft(sessionId, another);
      return another;
    });
  };
  const take = async (list: Iterable<File>): Promise<void> => {
    setReading((count) => count + 1);
    const { parts, leftOut } = await readFiles(list, attached.current);
    setReading((count) => count - 1);
    if (parts.length > 0) keepFiles([...attached.current, ...parts]);
    if (leftOut.length > 0) report(new Error(leftOutWords(leftOut)));
    field.current?.focus();
  };
  const attach = (list: Iterable<File>): void => {
    reads.current = Promise.all([reads.current, take(list)]);
  };

  useLayoutEffect(() => {
    const area = field.current;
    if (area === null) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
  }, [draft.text]);
  useEffect(() => {
    // A session that is opened is written to; one whose views are looked through is not.
    if (matchMedia("(hover: hover)").matches && writtenTo !== sessionId) field.current?.focus();
    writtenTo = sessionId;
    void loadFiles(sessionId).then((found) => found.length > 0 && showFiles([...found, ...attached.current]));
    return () => abandon.current?.();
  }, []);

  const isOver = useDrops(attach);

  const isEmpty = draft.text.trim() === "" && files.length + reading === 0;
  const isRunning = status === "running" && turn !== null;
  const isWaiting = status === "waiting";

  const submit = async (policy: Policy = "queue"): Promise<void> => {
    if (isEmpty || sending !== "no") return;
    setSending("sending");
    await reads.current;
    const { text } = draft;
    const parts: Part[] = [...(text.trim() === "" ? [] : [{ type: "text", text }]), ...attached.current];
    if (parts.length === 0) return setSending("no");
    const key = (reading === 0 ? draft.key : null) ?? newKey();
    keep({ text, key });
    let isAbandoned = false;
    const abandoned = new Promise<void>((resolve) => {
      abandon.current = () => {
        isAbandoned = true;
        resolve();
      };
    });
    for (let delayMs = 400; !isAbandoned; delayMs = Math.min(delayMs * 2, LONGEST_DELAY_MS)) {
      try {
        await send(sessionId, parts, key, policy);
        if (policy === "steer") say("It joins the running turn at its next step.");
        void saveFiles(sessionId, []);
        if (isAbandoned) saveDraftIfSent(sessionId, key);
        else {
          keep(NO_DRAFT);
          showFiles([]);
        }
        break;
      } catch (error) {
        if (isAbandoned) break;
        if (error instanceof Problem && error.code === "steering_unsupported") {
          unsteerable.value = new Set([...unsteerable.value, loopOf(state)]);
          say("This loop cannot be steered: the message waits for its turn instead.");
          policy = "queue";
          continue;
        }
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
    void submit(isRunning && (event.ctrlKey || event.metaKey) ? "interrupt" : "queue");
  };
  const stop = (): void => {
    if (turn === null) return;
    void attempt(async () => {
      const { stopped } = await stopTurn(sessionId, turn.turn_id);
      if (!stopped) say("That turn was over already.");
    });
  };

  return (
    <form
      class={isOver ? "composer over" : "composer"}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
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
        <Attachments files={files} onRemove={(file) => keepFiles(files.filter((other) => other !== file))} />
        <textarea
          ref={field}
          rows={1}
          dir="auto"
          data-testid="composer"
          aria-label="Message"
          aria-describedby="composer-keys"
          placeholder={placeholder(isRunning, isWaiting)}
          value={draft.text}
          readOnly={sending !== "no"}
          onInput={(event) => keep({ text: event.currentTarget.value, key: null })}
          onKeyDown={onKeyDown}
          onPaste={(event) => {
            const pasted = event.clipboardData?.files;
            if (!pasted || pasted.length === 0) return;
            event.preventDefault();
            attach(pasted);
          }}
        />
        <div class="tools">
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            data-testid="file-picker"
            onChange={(event) => {
              if (event.currentTarget.files) attach([...event.currentTarget.files]);
              event.currentTarget.value = "";
            }}
          />
          <button
            type="button"
            class="quiet square"
            aria-label="Attach files"
            title="Attach files (or paste, or drop them)"
            data-testid="attach"
            onClick={() => picker.current?.click()}
          >
            <Icon name="attach" />
          </button>
          <span id="composer-keys" class="keys">
            {isOver ? "Drop to attach" : reading > 0 ? "Reading files…" : isRunning ? "Enter queues · Ctrl+Enter interrupts" : "Enter sends · Shift+Enter for a new line"}
          </span>
          {isRunning && !isEmpty && !unsteerable.value.has(loopOf(state)) && (
            <button
              type="button"
              data-testid="steer"
              title="Join the running turn at its next step"
              disabled={sending !== "no"}
              onClick={() => void submit("steer")}
            >
              Steer
            </button>
          )}
          {isRunning && !isEmpty && (
            <button
              type="button"
              data-testid="interrupt"
              title="Stop the running turn and run this message now (Ctrl+Enter)"
              disabled={sending !== "no"}
              onClick={() => void submit("interrupt")}
            >
              Interrupt
            </button>
          )}
          {isRunning && (
            <button
              type="button"
              class="stop square"
              data-testid="stop"
              data-turn-id={turn.turn_id}
              aria-label="Stop this turn"
              title="Stop this turn"
              onClick={stop}
            >
              <Icon name="stop" />
            </button>
          )}
          <button
            type="submit"
            class="send square"
            data-testid="send"
            aria-label={isRunning ? "Queue this message" : "Send"}
            title={isRunning ? "Queue this message" : "Send"}
            disabled={isEmpty || sending !== "no"}
          >
            <Icon name="up" />
          </button>
        </div>
      </div>
    </form>
  );
}

const loopOf = ({ loop }: SessionState): string => loop ?? "";

function placeholder(isRunning: boolean, isWaiting: boolean): string {
  if (isRunning) return "Write the next message";
  return isWaiting ? "Answer the approval above, or write the next message" : "Write a message";
}

/** The message arrived after the person had left: their draft goes, unless they changed it. */
function saveDraftIfSent(sessionId: string, key: string): void {
  if (loadDraft(sessionId).key === key) saveDraft(sessionId, null);
}
