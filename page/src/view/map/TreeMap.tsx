import { useEffect, useMemo, useState } from "preact/hooks";
import { type Line, type Stop, toLines } from "../../model/tree";
import { readTree } from "../../net/api";
import type { Outline } from "../../net/wire";
import { attempt } from "../../state/notice";
import { hrefOfEntry } from "../../state/route";
import { session } from "../../state/session";
import { plural, SPEAKERS } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Time } from "../part/Time";

/** A map of more entries than this would not be read by anybody. */
const MOST_ENTRIES = 20_000;
const CATCH_UP_MS = 300;

/** A map of the tree: what was said, where branches part, and which of them is the active one. */
export function TreeMap({ id }: { id: string }) {
  const [outlines, setOutlines] = useState<readonly Outline[]>([]);
  const [after, setAfter] = useState<number | null>(0);
  const [isWhole, setWhole] = useState(false);
  const seq = session.value?.seq ?? 0;
  const leafId = session.value?.path.leafId ?? null;

  useEffect(() => {
    if (after === null) return;
    void attempt(async () => {
      const page = await readTree(id, after);
      setOutlines((before) => [...before, ...page.entries]);
      const isFull = outlines.length + page.entries.length >= MOST_ENTRIES;
      setAfter(isFull ? null : page.next);
      setWhole(page.next === null);
    });
  }, [id, after]);
  useEffect(() => {
    const known = outlines.at(-1)?.seq ?? 0;
    if (!isWhole || seq <= known) return undefined;
    const timer = setTimeout(() => {
      void attempt(async () => {
        const page = await readTree(id, known);
        if (page.entries.length > 0) setOutlines((before) => (before.at(-1)?.seq ?? 0) === known ? [...before, ...page.entries] : before);
      });
    }, CATCH_UP_MS);
    return () => clearTimeout(timer);
  }, [isWhole, seq, outlines]);

  const lines = useMemo(() => toLines(outlines, leafId), [outlines, leafId]);
  const tips = useMemo(() => countTips(outlines), [outlines]);
  return (
    <section class="map scroller" data-testid="map" aria-label="Map of the tree" tabIndex={0}>
      <div class="map-content">
        <p class="hint">
          {plural(outlines.length, "entry", "entries")}, {plural(tips, "branch", "branches")}
          {!isWhole && (after === null ? "; the rest is too much for a map" : "…")}
        </p>
        {lines.map((line, index) => (
          <MapLine key={index} id={id} line={line} />
        ))}
        {isWhole && lines.length === 0 && <p class="hint">Nothing grows here yet.</p>}
      </div>
    </section>
  );
}

function MapLine({ id, line }: { id: string; line: Line }) {
  return (
    <ol class="line">
      {line.stops.map((stop) => (
        <MapStop key={stop.outline.id} id={id} stop={stop} />
      ))}
    </ol>
  );
}

function MapStop({ id, stop }: { id: string; stop: Stop }) {
  const { outline, isOnPath, isLeaf, isTip, following, branches } = stop;
  const role = outline.role ?? outline.type;
  return (
    <li
      class={`map-stop ${isOnPath ? "on-path" : ""} ${isLeaf ? "leaf" : ""} ${outline.role === "user" ? "user" : "other"}`}
      data-testid="map-stop"
      data-entry-id={outline.id}
      data-on-path={isOnPath}
    >
      <a href={hrefOfEntry(id, outline.id)}>
        <span class="role">{SPEAKERS[role] ?? role}</span>
        <bdi class="says">{visibleText(outline.text) || "…"}</bdi>
        {following > 0 && <small title={`and ${plural(following, "entry", "entries")} after it`}>+{following}</small>}
        {isLeaf && <b class="here">here</b>}
        {isTip && !isLeaf && <small>ends</small>}
        <Time at={outline.created_at} />
      </a>
      {branches.length > 0 && (
        <ol class="parting" aria-label={plural(branches.length, "branch", "branches")}>
          {branches.map((line, index) => (
            <li key={index}>
              <MapLine id={id} line={line} />
            </li>
          ))}
        </ol>
      )}
    </li>
  );
}

function countTips(outlines: readonly Outline[]): number {
  const parents = new Set(outlines.map((outline) => outline.parent_id));
  return outlines.filter((outline) => !parents.has(outline.id)).length;
}
