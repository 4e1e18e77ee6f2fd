import { useEffect, useState } from "preact/hooks";
import { verdictOf, wordsOf } from "../../model/verdict";
import { readBetween } from "../../net/facts";
import { showJson } from "../../net/json";
import type { Elision, Entry, Part } from "../../net/wire";
import { attempt } from "../../state/notice";
import { visibleText } from "../../text/visible";
import { Time } from "../part/Time";
import { Code } from "./Code";
import { Elided } from "./Elided";

interface VerdictProps {
  sessionId: string;
  call: Part;
  /** The `seq` of the call's entry, and of its result's where there is one. */
  askedAt: number;
  answeredAt: number | null;
}

/** Who said yes or no to a call, and what it ran with instead of what was asked for. */
export function Verdict({ sessionId, call, askedAt, answeredAt }: VerdictProps) {
  const [facts, setFacts] = useState<readonly Entry[]>([]);
  useEffect(() => {
    let isWanted = true;
    void attempt(async () => {
      const found = await readBetween(sessionId, askedAt, answeredAt ?? Infinity);
      if (isWanted) setFacts(found);
    });
    return () => {
      isWanted = false;
    };
  }, [sessionId, call.call_id, askedAt, answeredAt]);

  const { ranWith, decisions } = verdictOf(facts, call.call_id ?? "", call.elided ? undefined : call.arguments);
  return (
    <>
      {ranWith !== null && (
        <div data-testid="ran-with">
          <p class="label">It ran with this input instead</p>
          <Input input={ranWith.input} />
        </div>
      )}
      {decisions.length > 0 && (
        <ul class="aftermath verdict" data-testid="verdict">
          {decisions.map((fact) => (
            <li key={fact.seq} class={fact.approve === true ? "yes" : undefined}>
              <Time at={fact.created_at} isPrecise /> <bdi>{visibleText(wordsOf(fact))}</bdi>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Input({ input }: { input: unknown }) {
  const elision = input as Partial<Elision> | null;
  if (typeof elision === "object" && elision?.elided === true && elision.href !== undefined) {
    return <Elided href={elision.href} bytes={elision.bytes} name="input.json" />;
  }
  return <Code text={showJson(input)} label="Copy the input it ran with" />;
}
