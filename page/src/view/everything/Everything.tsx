import { useEffect, useRef, useState } from "preact/hooks";
import { isCut, type Kind, kindOf, rawOf, summaryOf } from "../../model/journal";
import * as api from "../../net/api";
import type { Entry } from "../../net/wire";
import { attempt } from "../../state/notice";
import { hrefOf, route } from "../../state/route";
import { session } from "../../state/session";
import { plural, showBytes, showClock, showCount, showFullTime } from "../../text/format";
import { visibleCode, visibleText } from "../../text/visible";
import { Fold } from "../part/Fold";
import { Copy } from "../part/Copy";
import { useScrolling } from "../transcript/scrolling";

const PAGE = 100;
/** The most rows in the page; what is scrolled away is loaded again on the way back. */
const MOST_ROWS = 500;
/** Beyond this an entry is not drawn at once: its file is there to be taken. */
const DRAWN_BYTES = 512 * 1024;
const CATCH_UP_MS = 150;

const KINDS: readonly (readonly [Kind, string])[] = [
  ["message", "Messages"],
  ["context", "Injected context"],
  ["hook", "Hooks"],
  ["fact", "Facts"],
];

interface Rows {
  entries: readonly Entry[];
  hasOlder: boolean;
  hasNewer: boolean;
}

/** The journal itself: every entry in append order, raw, with its `seq`. */
export function Everything({ id }: { id: string }) {
  const [rows, setRows] = useState<Rows | null>(null);
  const [hidden, setHidden] = useState<ReadonlySet<Kind>>(new Set());
  const isBusy = useRef(false);
  const target = Number(route.value.rest) || 0;

  const alone = (load: () => Promise<void>): void => {
    if (isBusy.current) return;
    isBusy.current = true;
    void attempt(load).then(() => {
      isBusy.current = false;
    });
  };
  const loadOlder = (): void =>
    alone(async () => {
      const before = rows?.entries[0]?.seq;
      if (rows === null || before === undefined) return;
      const page = await api.readEntries(id, { before, limit: PAGE });
      const entries = [...page.entries, ...rows.entries];
      const kept = entries.slice(0, MOST_ROWS);
      setRows({ entries: kept, hasOlder: page.has_more, hasNewer: rows.hasNewer || kept.length < entries.length });
    });
  const loadNewer = (): void =>
    alone(async () => {
      if (rows === null) return;
      const page = await api.readEntries(id, { after: rows.entries.at(-1)?.seq ?? 0, limit: PAGE });
      if (page.entries.length === 0 && !rows.hasNewer) return;
      const entries = [...rows.entries, ...page.entries];
      const kept = entries.slice(-MOST_ROWS);
      setRows({ entries: kept, hasOlder: rows.hasOlder || kept.length < entries.length, hasNewer: page.has_more });
    });

  useEffect(() => {
    void attempt(async () => {
      if (target === 0) {
        const page = await api.readEntries(id, { limit: PAGE });
        setRows({ entries: page.entries, hasOlder: page.has_more, hasNewer: false });
        return;
      }
      const older = await api.readEntries(id, { before: target + 1, limit: PAGE / 2 });
      const newer = await api.readEntries(id, { after: target, limit: PAGE / 2 });
      setRows({ entries: [...older.entries, ...newer.entries], hasOlder: older.has_more, hasNewer: newer.has_more });
    });
  }, [id, target]);

  const scrolling = useScrolling({
    hasOlder: rows?.hasOlder ?? false,
    hasNewer: rows?.hasNewer ?? false,
    loadOlder,
    loadNewer,
    startsAtEnd: target === 0,
  });
  const seq = session.value?.seq ?? 0;
  useEffect(() => {
    if (rows === null || rows.hasNewer || seq <= (rows.entries.at(-1)?.seq ?? 0)) return undefined;
    const timer = setTimeout(loadNewer, CATCH_UP_MS);
    return () => clearTimeout(timer);
  }, [seq, rows]);
  const isThere = rows !== null;
  useEffect(() => {
    if (isThere && target !== 0) scrolling.toRow(String(target));
  }, [isThere, target]);

  if (rows === null) return <p class="hint middle">Loading…</p>;
  const shown = rows.entries.filter((entry) => !hidden.has(kindOf(entry)));
  const turn = (kind: Kind): void => {
    const changed = new Set(hidden);
    if (!changed.delete(kind)) changed.add(kind);
    setHidden(changed);
  };
  return (
    <section class="everything" data-testid="everything" aria-label="The journal">
      <div class="kinds" role="group" aria-label="What is shown">
        {KINDS.map(([kind, words]) => (
          <button key={kind} type="button" class="chip" aria-pressed={!hidden.has(kind)} data-testid={`kind-${kind}`} onClick={() => turn(kind)}>
            {words}
          </button>
        ))}
        <span class="hint">{plural(seq || (rows.entries.at(-1)?.seq ?? 0), "entry", "entries")}</span>
      </div>
      <div class="scroller" ref={scrolling.frame} onScroll={scrolling.onScroll} tabIndex={0} role="region" aria-label="Entries by seq" onClick={(event) => event.target instanceof Element && event.target.closest("summary") && scrolling.stay()}>
        <div class="journal">
          {rows.hasOlder && (
            <button type="button" class="quiet older" onClick={loadOlder}>
              Earlier entries
            </button>
          )}
          {shown.map((entry) => (
            <JournalRow key={entry.seq} id={id} entry={entry} isTarget={entry.seq === target} />
          ))}
          {rows.hasNewer && (
            <button type="button" class="quiet older" onClick={loadNewer}>
              Later entries
            </button>
          )}
        </div>
      </div>
    </section>
  );
}

function JournalRow({ id, entry, isTarget }: { id: string; entry: Entry; isTarget: boolean }) {
  return (
    <div class={isTarget ? "entry target" : "entry"} data-row={String(entry.seq)} data-testid="journal-entry" data-seq={entry.seq} data-type={entry.type}>
      <Fold
        class={`journal-row ${kindOf(entry)}`}
        isOpen={isTarget}
        summary={
          <>
            <span class="seq">{showCount(entry.seq)}</span>
            <time dateTime={entry.created_at} title={showFullTime(entry.created_at)}>
              {showClock(entry.created_at)}
            </time>
            <span class="type">{visibleCode(entry.type)}</span>
            <bdi class="says">{visibleText(summaryOf(entry))}</bdi>
          </>
        }
      >
        {() => <Raw id={id} entry={entry} />}
      </Fold>
    </div>
  );
}

/** The entry as the server has it, whole. */
function Raw({ id, entry }: { id: string; entry: Entry }) {
  const [whole, setWhole] = useState<string | null>(() => (isCut(entry) ? null : rawOf(entry)));
  const raw = (): Promise<string> => api.readRawEntry(id, entry.seq);
  const address = api.sessionUrl(id, `/entries/${entry.seq}`).href;
  return (
    <>
      <div class="code">
        <pre dir="ltr" tabIndex={0}>
          {visibleCode(whole ?? rawOf(entry))}
        </pre>
      </div>
      <div class="pager">
        {whole === null && (
          <button
            type="button"
            class="tiny"
            onClick={() =>
              void attempt(async () => {
                const text = await raw();
                if (text.length > DRAWN_BYTES) throw new Error(`It has ${showBytes(text.length)}: download it instead.`);
                setWhole(text);
              })
            }
          >
            Show what is left out
          </button>
        )}
        <span class="space" />
        <a class="tiny" href={hrefOf(id, "everything", String(entry.seq))}>
          Link
        </a>
        {entry.parent_id !== undefined && (
          <a class="tiny" href={hrefOf(id, "entry", entry.id)}>
            In the conversation
          </a>
        )}
        <a class="tiny" href={address} download={`entry-${entry.seq}.json`}>
          Download
        </a>
        <Copy label="Copy the raw entry" text={raw} />
      </div>
    </>
  );
}
