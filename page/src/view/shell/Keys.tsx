import { useEffect, useState } from "preact/hooks";
import { go, hrefOf, sessionId } from "../../state/route";
import { isMaking, newSession } from "../../state/sessions";
import { Dialog } from "../part/Dialog";

const focusOn = (testId: string): void => document.querySelector<HTMLElement>(`[data-testid=${testId}]`)?.focus();
const press = (testId: string): void => document.querySelector<HTMLElement>(`[data-testid=${testId}]`)?.click();

/** Moves to the next message, or the one before, from where the focus or else the view is. */
function step(direction: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>(".transcript .message")];
  const held = rows.findIndex((row) => row.contains(document.activeElement));
  const middle = innerHeight / 2;
  const seen = rows.findIndex((row) => row.getBoundingClientRect().bottom > middle);
  const at = held >= 0 ? held + direction : seen;
  const row = rows[Math.min(Math.max(at, 0), rows.length - 1)];
  row?.focus({ preventScroll: true });
  row?.scrollIntoView({ block: "nearest" });
}

const here = (view: string): void => {
  if (sessionId.value !== null) go(hrefOf(sessionId.value, view));
};

interface Key {
  key: string;
  says: string;
  act(): void;
}

const KEYS: readonly Key[] = [
  { key: "n", says: "New session", act: () => void newSession() },
  { key: "N", says: "New session, with a loop and runtime", act: () => (isMaking.value = true) },
  { key: "/", says: "Find a session", act: () => focusOn("filter") },
  { key: "i", says: "Write a message", act: () => focusOn("composer") },
  { key: "j", says: "Next message", act: () => step(1) },
  { key: "k", says: "Message before", act: () => step(-1) },
  { key: "End", says: "To the newest message", act: () => press("to-end") },
  { key: "c", says: "Conversation", act: () => here("") },
  { key: "e", says: "Everything: the journal", act: () => here("everything") },
  { key: "m", says: "Map of the tree", act: () => here("map") },
  { key: "s", says: "Stop the turn", act: () => press("stop") },
  { key: "r", says: "Send again", act: () => press("resend") },
];

const isWriting = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable], dialog, [role=menu]") !== null;

/** One key for each thing, outside of fields; `?` tells which. */
export function Keys() {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
      if (event.key === "Escape" && event.target instanceof HTMLTextAreaElement) event.target.blur();
      if (isWriting(event.target)) return;
      if (event.key === "?") {
        event.preventDefault();
        setShown(true);
        return;
      }
      const found = KEYS.find(({ key }) => key === event.key);
      if (found === undefined) return;
      event.preventDefault();
      found.act();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  if (!isShown) return null;
  return (
    <Dialog title="Keys" onClose={() => setShown(false)} testId="keys">
      <dl class="keys-list">
        {KEYS.map(({ key, says }) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Enter</kbd>
          </dt>
          <dd>Send, or queue behind the running turn</dd>
        </div>
        <div>
          <dt>
            <kbd>Ctrl</kbd> <kbd>Enter</kbd>
          </dt>
          <dd>Interrupt the running turn with this message</dd>
        </div>
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Leave the field</dd>
        </div>
      </dl>
    </Dialog>
  );
}
