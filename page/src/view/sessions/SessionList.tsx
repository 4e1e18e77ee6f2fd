import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Look } from "../../net/wire";
import { hrefOf, sessionId } from "../../state/route";
import { filter, listing, loadMoreSessions } from "../../state/sessions";
import { plural, sessionName, shortId, showWhen } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

/** Every row has this height, so that ten thousand of them need no more than what is seen. */
const ROW_PX = 54;
const MORE_ROWS = 8;
const LOAD_ROWS = 40;

/** The sessions, newest activity first: only the rows near what is seen are in the page. */
export function SessionList() {
  const { sessions, next, isLoaded } = listing.value;
  const frame = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 800 });

  const look = (): void => {
    const view = frame.current;
    if (view === null) return;
    setSeen((before) =>
      Math.abs(before.top - view.scrollTop) < ROW_PX && before.height === view.clientHeight
        ? before
        : { top: view.scrollTop, height: view.clientHeight },
    );
  };
  useLayoutEffect(() => {
    if (frame.current === null) return undefined;
    const observer = new ResizeObserver(look);
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(Math.floor(seen.top / ROW_PX) - MORE_ROWS, 0);
  const last = Math.min(Math.ceil((seen.top + seen.height) / ROW_PX) + MORE_ROWS, sessions.length);
  useEffect(() => {
    if (next !== null && last + LOAD_ROWS > sessions.length) void loadMoreSessions();
  }, [next, last, sessions.length]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const view = frame.current;
    if (step === undefined || view === null || !(event.target instanceof HTMLElement)) return;
    const index = Number(event.target.closest("li")?.dataset.index ?? -1) + step;
    if (index < 0 || index >= sessions.length) return;
    event.preventDefault();
    if (index * ROW_PX < view.scrollTop) view.scrollTop = index * ROW_PX;
    const end = (index + 1) * ROW_PX - view.clientHeight;
    if (end > view.scrollTop) view.scrollTop = end;
    requestAnimationFrame(() => view.querySelector<HTMLElement>(`li[data-index="${index}"] a`)?.focus());
  };

  const isFiltered = filter.value.match !== "" || filter.value.status !== "";
  return (
    <div class="session-list" ref={frame} onScroll={look} onKeyDown={onKeyDown} data-testid="session-scroller">
      {/* A row is placed by its number: a list that grows at the top moves nothing in the page. */}
      <ul data-testid="session-list" data-loaded={sessions.length} style={{ height: `${sessions.length * ROW_PX}px` }}>
        {sessions.slice(first, last).map((session, index) => (
          <SessionRow key={session.session_id} look={session} index={first + index} total={next === null ? sessions.length : -1} />
        ))}
      </ul>
      <p class="hint" role={isFiltered ? "status" : undefined}>
        {wordsAtTheEnd(isLoaded && next === null, isFiltered, sessions.length)}
      </p>
    </div>
  );
}

function wordsAtTheEnd(isWhole: boolean, isFiltered: boolean, count: number): string {
  if (!isWhole) return isFiltered ? "Looking through older sessions…" : count > 0 ? "Loading older sessions…" : "Loading…";
  if (count > 0) return "";
  return isFiltered ? "No session is like that." : "No sessions yet.";
}

const WORDS: Record<string, string> = { waiting: "needs approval" };

function SessionRow({ look, index, total }: { look: Look; index: number; total: number }) {
  const id = look.session_id;
  const name = sessionName(id, look.title, look.created_at);
  const detail = name === shortId(id) ? look.title : shortId(id);
  const forks = listing.value.sessions.length <= 500 ? childrenOf(id) : 0;
  return (
    <li
      data-testid="session-item"
      data-session-id={id}
      data-status={look.status}
      data-index={index}
      aria-setsize={total}
      aria-posinset={index + 1}
      style={{ transform: `translateY(${index * ROW_PX}px)` }}
    >
      <a href={hrefOf(id)} aria-current={id === sessionId.value ? "page" : undefined} title={id}>
        <span class={`dot ${look.status}`} aria-hidden="true" />
        <bdi class="name">{visibleText(name)}</bdi>
        <time class="when" dateTime={look.last_activity}>
          {showWhen(look.last_activity ?? look.created_at)}
        </time>
        <span class="detail">
          {look.status !== "idle" && <b class={look.status}>{WORDS[look.status] ?? look.status}</b>}
          {look.parent_id && (
            <span title={`Forked from ${look.parent_id}`}>
              <Icon name="fork" size={12} /> <bdi>{visibleText(shortId(look.parent_id))}</bdi>
            </span>
          )}
          {forks > 0 && <span>{plural(forks, "fork")}</span>}
          {detail && <bdi class="rest">{visibleText(detail)}</bdi>}
        </span>
      </a>
    </li>
  );
}

function childrenOf(id: string): number {
  return listing.value.sessions.reduce((sum, other) => sum + Number(other.parent_id === id), 0);
}
