import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { liveOutputs, liveText, toBlocks } from "../blocks";
import type { SessionState } from "../session";
import { defaultLoop, loadOlder, sent, session } from "../store";
import { LiveMessageView } from "./LiveMessageView";
import { MessageView } from "./MessageView";
import { TurnState } from "./TurnState";

/** Nearer to the end than this, the view follows what comes. */
const FOLLOW_PX = 48;
/** Nearer to the beginning than this, the page before is loaded. */
const LOAD_PX = 800;

const hintOf = (loop: string | null): string => {
  const first = "Nothing here yet. Write the first message below";
  if (loop === "shell") return `${first}: it is run as a command in the server's workspace.`;
  return loop === null ? `${first}.` : `${first}; ${loop} answers.`;
};

export function Transcript({ state }: { state: SessionState }) {
  const scroller = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);
  const blocks = useMemo(() => toBlocks(state.path), [state.path]);

  const place = (): void => {
    const view = scroller.current;
    if (view === null) return;
    const { hasMore } = session.value ?? state;
    const below = view.scrollHeight - view.scrollTop - view.clientHeight;
    isFollowing.current = below < FOLLOW_PX;
    setAtEnd(isFollowing.current);
    if (view.scrollTop < LOAD_PX && hasMore) void loadOlder();
  };

  // Somebody who opens a fold at the end wants to read it, not to be carried to its end.
  const onClick = (event: MouseEvent): void => {
    if (event.target instanceof Element && event.target.closest("summary")) isFollowing.current = false;
  };

  const firstId = state.path[0]?.id;
  const shownFirst = useRef(firstId);
  // Measured while the old content still stands: what is put above it must not move it.
  const before = scroller.current && {
    height: scroller.current.scrollHeight,
    top: scroller.current.scrollTop,
  };
  useLayoutEffect(() => {
    const view = scroller.current;
    if (view === null) return;
    if (isFollowing.current) view.scrollTop = view.scrollHeight;
    else if (before && shownFirst.current !== firstId) {
      view.scrollTop = before.top + view.scrollHeight - before.height;
    }
    shownFirst.current = firstId;
    if (view.scrollTop < LOAD_PX && state.hasMore) void loadOlder();
  }, [state.path, state.live, state.status, state.queued]);

  useLayoutEffect(() => {
    const view = scroller.current;
    if (view === null) return undefined;
    const observer = new ResizeObserver(() => {
      if (isFollowing.current) view.scrollTop = view.scrollHeight;
      else place();
    });
    observer.observe(view);
    for (const content of view.children) observer.observe(content);
    return () => observer.disconnect();
  }, []);

  const timesSent = sent.value;
  useLayoutEffect(() => {
    if (scroller.current === null) return;
    isFollowing.current = true;
    scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [timesSent]);

  const isActive = state.status === "running" || state.status === "waiting";
  const lastInput = blocks.findLastIndex(({ entry }) => entry.role === "user");
  const active = blocks.slice(lastInput + 1);
  const outputs = liveOutputs(active, state.live);
  const placed = new Set(outputs.values());
  const others = state.live.filter((message) => !placed.has(message));
  const isLast = (index: number): boolean => {
    const next = blocks[index + 1];
    return next === undefined ? others.length === 0 : next.entry.role !== "assistant";
  };
  return (
    <div class="scroller-frame">
      <div class="scroller" ref={scroller} onScroll={place} onClick={onClick} tabIndex={0}>
        <div class="transcript" data-testid="transcript" data-leaf-id={state.leafId ?? ""} role="log">
          {state.hasMore && (
            <button type="button" class="quiet older" data-testid="older" onClick={() => void loadOlder()}>
              Earlier messages
            </button>
          )}
          {blocks.length === 0 && state.live.length === 0 && !isActive && (
            <p class="hint">{hintOf(state.loop ?? defaultLoop.value)}</p>
          )}
          {blocks.map((block, index) => (
            <MessageView
              key={block.entry.id}
              block={block}
              isActive={isActive && index > lastInput}
              isLast={isLast(index)}
              outputs={block.calls.map(({ call }) => {
                const output = outputs.get(call.call_id ?? "");
                return output === undefined ? null : liveText(output);
              })}
            />
          ))}
          {others.map((message) => (
            <LiveMessageView key={message.messageId} message={message} />
          ))}
          <TurnState state={state} />
        </div>
      </div>
      {!isAtEnd && (
        <button
          type="button"
          class="to-end"
          aria-label="To the newest message"
          onClick={() => {
            const view = scroller.current;
            if (view !== null) view.scrollTop = view.scrollHeight;
          }}
        >
          ↓
        </button>
      )}
    </div>
  );
}
