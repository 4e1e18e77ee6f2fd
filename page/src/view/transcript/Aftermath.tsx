import { useEffect, useState } from "preact/hooks";
import { aftermathOf, cutCalls, isTelling } from "../../model/aftermath";
import type { Block } from "../../model/blocks";
import * as api from "../../net/api";
import type { Entry } from "../../net/wire";
import { attempt } from "../../state/notice";
import { session } from "../../state/session";
import { visibleCode, visibleText } from "../../text/visible";
import { Fold } from "../part/Fold";
import { Time } from "../part/Time";
import { ToolResult } from "../tool/ToolResult";

const PAGE = 100;
/** How far behind a call its late result is looked for; the journal has it in any case. */
const MOST_PAGES = 5;

const ENDED: Record<string, string> = {
  interrupted: "The turn was interrupted",
  stopped: "The turn was stopped",
  failed: "The turn failed",
  refused: "The turn was refused",
};

/** What became of what was cut off: the runtime that was lost, the turn's end, results that came late. */
export function Aftermath({ sessionId, block }: { sessionId: string; block: Block }) {
  const [read, setRead] = useState<readonly Entry[]>([]);
  const { entry, calls } = block;
  useEffect(() => {
    let isWanted = true;
    void attempt(async () => {
      const facts: Entry[] = [];
      let after = entry.seq;
      for (let page = 0; page < MOST_PAGES && isWanted; page++) {
        const found = await api.readEntries(sessionId, { after, limit: PAGE });
        facts.push(...found.entries.filter(isTelling));
        after = found.entries.at(-1)?.seq ?? after;
        const told = aftermathOf(facts, block);
        if (!found.has_more || (told.ended !== null && told.late.length === cutCalls(block).size)) break;
      }
      if (isWanted) setRead(facts);
    });
    return () => {
      isWanted = false;
    };
  }, [sessionId, entry.id]);

  const { lost, ended, late } = aftermathOf([...read, ...(session.value?.facts ?? [])], block);
  const nameOf = (fact: Entry): string =>
    calls.find(({ call }) => call.call_id === fact.call_id)?.call.name ?? fact.call_id ?? "";
  const words = ended === null ? undefined : ENDED[ended.reason ?? ""];
  // The rule that ends the text says it already, where there is no more to be said.
  const isSaid = entry.end != null && entry.end === ended?.reason && !ended.cause && lost.length + late.length === 0;
  if (isSaid) return null;
  if (lost.length === 0 && late.length === 0 && words === undefined) return null;
  return (
    <ul class="aftermath" data-testid="aftermath">
      {lost.map((fact) => (
        <li key={fact.seq} data-testid="runtime-lost">
          <Time at={fact.created_at} isPrecise /> The runtime <bdi class="id">{visibleCode(fact.runtime_id ?? "")}</bdi> was lost
          {fact.cause ? (
            <>
              : <bdi>{visibleText(fact.cause)}</bdi>
            </>
          ) : null}
        </li>
      ))}
      {ended !== null && words !== undefined && (
        <li>
          <Time at={ended.created_at} isPrecise /> {words}
          {ended.cause && lost.length === 0 ? (
            <>
              : <bdi>{visibleText(ended.cause)}</bdi>
            </>
          ) : null}
        </li>
      )}
      {late.map((fact) => (
        <li key={fact.seq} data-testid="late-result">
          <Fold
            class="plain-fold"
            summary={
              <>
                <Time at={fact.created_at} isPrecise /> A result of <bdi>{visibleCode(nameOf(fact))}</bdi> came late; it changes
                nothing of the conversation
              </>
            }
          >
            {() => <ToolResult part={{ type: "tool_result", name: nameOf(fact), parts: fact.parts ?? [] }} />}
          </Fold>
        </li>
      ))}
    </ul>
  );
}
