import { Fragment } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { approvalsElsewhere, NO_APPROVALS } from "../../model/approvals";
import { liveOutputs, liveText, toBlocks } from "../../model/blocks";
import type { SessionState } from "../../model/session";
import { loadNewer, loadOlder } from "../../state/paging";
import { attempt } from "../../state/notice";
import { reading, showNewestOf } from "../../state/reading";
import { route } from "../../state/route";
import { defaultLoop, sent, showEntry, showNewest } from "../../state/session";
import { showDay } from "../../text/format";
import { visibleCode } from "../../text/visible";
import { Icon } from "../part/Icon";
import { ApprovalForm } from "../tool/ApprovalForm";
import { LiveMessage } from "./LiveMessage";
import { Message } from "./Message";
import { ReadingBar } from "./ReadingBar";
import { useScrolling } from "./scrolling";
import { TurnState } from "./TurnState";

const hintOf = (loop: string | null): string => {
  const first = "Write the first message below";
  if (loop === "shell") return `${first}: it is run as a command in the server's workspace.`;
  return loop === null ? `${first}.` : `${first}; ${loop} answers.`;
};

/** The conversation: a window of it that loads on in both directions as it is scrolled. */
export function Transcript({ state }: { state: SessionState }) {
  const other = reading.value;
  const path = other?.path ?? state.path;
  const isOther = other !== null;
  const blocks = useMemo(() => toBlocks(path.entries), [path.entries]);
  const { view, rest: target } = route.value;
  const [shownTarget, setShownTarget] = useState("");
  const scrolling = useScrolling({
    hasOlder: path.hasOlder,
    hasNewer: path.hasNewer,
    loadOlder: () => void loadOlder(),
    loadNewer: () => void loadNewer(),
    startsAtEnd: view !== "entry",
  });

  useEffect(() => {
    setShownTarget("");
    if (view === "entry" && target !== "") void showEntry(target);
  }, [view, target]);
  useLayoutEffect(() => {
    if (view === "entry" && target !== shownTarget && scrolling.toRow(rowOf(blocks, target))) setShownTarget(target);
  });

  const timesSent = sent.value;
  useLayoutEffect(() => {
    if (timesSent === 0) return;
    if (path.hasNewer) void showNewest();
    scrolling.toEnd();
  }, [timesSent]);

  // Somebody who opens a fold at the end wants to read it, not to be carried to its end.
  const onClick = (event: MouseEvent): void => {
    if (event.target instanceof Element && event.target.closest("summary, button")) scrolling.stay();
  };

  const isActive = !isOther && (state.status === "running" || state.status === "waiting");
  const lastInput = blocks.findLastIndex(({ entry }) => entry.role === "user");
  const live = isOther || path.hasNewer ? [] : state.live;
  const outputs = liveOutputs(blocks.slice(lastInput + 1), live);
  const placed = new Set(outputs.values());
  const others = live.filter((message) => !placed.has(message));
  const isLast = (index: number): boolean => {
    const next = blocks[index + 1];
    return next === undefined ? others.length === 0 && !path.hasNewer : next.entry.role !== "assistant";
  };
  const calls = blocks.slice(lastInput + 1).flatMap((block) => block.calls);
  const elsewhere = isActive ? approvalsElsewhere(state.approvals, calls.map(({ call }) => call.call_id)) : [];
  let day = "";
  return (
    <div class={isOther ? "scroller-frame other" : "scroller-frame"}>
      <div
        class="scroller"
        ref={scrolling.frame}
        onScroll={scrolling.onScroll}
        onClick={onClick}
        tabIndex={0}
        role="region"
        aria-label="Conversation"
      >
        <div class="transcript" data-testid="transcript" data-leaf-id={path.leafId ?? ""} data-first={path.entries[0]?.seq}>
          {path.hasOlder && (
            <button type="button" class="quiet older" data-testid="older" onClick={() => void loadOlder()}>
              Earlier messages
            </button>
          )}
          {blocks.length === 0 && live.length === 0 && state.status === "idle" && (
            <div class="empty">
              <h2>Nothing here yet</h2>
              <p class="hint">{hintOf(state.loop ?? defaultLoop.value)}</p>
            </div>
          )}
          {blocks.map((block, index) => {
            const its = showDay(block.entry.created_at);
            const isNewDay = its !== day && (index > 0 || !path.hasOlder) && its !== "Today";
            day = its;
            return (
              <Fragment key={block.entry.id}>
                {isNewDay && (
                  <p class="day">
                    <span>{its}</span>
                  </p>
                )}
                <Message
                  sessionId={state.sessionId}
                  block={block}
                  isActive={isActive && index > lastInput}
                  isLast={isLast(index)}
                  isUnanswered={block.entry.role === "user" && blocks[index + 1]?.entry.role === "user"}
                  isTarget={view === "entry" && block.entry.id === target}
                  isAtRest={!isActive && state.status !== "deleted"}
                  approvals={isActive && index > lastInput ? state.approvals : NO_APPROVALS}
                  outputs={block.calls.map(({ call }) => {
                    const output = outputs.get(call.call_id ?? "");
                    return output === undefined ? null : liveText(output);
                  })}
                />
              </Fragment>
            );
          })}
          {others.map((message) => (
            <LiveMessage key={message.messageId} message={message} />
          ))}
          {!path.hasNewer &&
            elsewhere.map((approval) => (
              <div key={approval.callId} class="tool waiting alone" data-testid="approval-alone">
                <p>
                  <bdi class="name">{visibleCode(approval.name)}</bdi> needs your approval
                </p>
                <ApprovalForm sessionId={state.sessionId} approval={approval} />
              </div>
            ))}
          {!isOther && !path.hasNewer && <TurnState state={state} />}
          {path.hasNewer && (
            <button type="button" class="quiet older" data-testid="newer" onClick={() => void loadNewer()}>
              Later messages
            </button>
          )}
        </div>
      </div>
      {isOther && <ReadingBar shown={other} canSwitch={state.status !== "running" && state.status !== "waiting"} />}
      {!scrolling.isAtEnd && (
        <button
          type="button"
          class="to-end"
          aria-label="To the newest message"
          title="To the newest message"
          data-testid="to-end"
          onClick={() => {
            if (!path.hasNewer) scrolling.toEnd();
            else void attempt(() => (isOther ? showNewestOf(other) : showNewest())).then(scrolling.toEnd);
          }}
        >
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}

/** The row of an entry: a tool's result stands in that of its call. */
function rowOf(blocks: ReturnType<typeof toBlocks>, entryId: string): string {
  const found = blocks.find(
    ({ entry, calls }) => entry.id === entryId || calls.some(({ resultEntry }) => resultEntry?.id === entryId),
  );
  return found?.entry.id ?? entryId;
}
