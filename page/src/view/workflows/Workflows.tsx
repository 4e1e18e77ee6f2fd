import { useEffect, useState } from "preact/hooks";
import { listWorkflows, type WorkflowBrief } from "../../net/around";
import { useAround } from "../../state/around";
import { hrefOfPlace, route } from "../../state/route";
import { shortId } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";
import { Pill } from "../place/Pill";
import { Nothing, Place, PlaceProblem } from "../place/Place";
import { Distance } from "../place/When";
import { StartDialog } from "./StartDialog";
import { TONES, workflowWords } from "./words";
import { WorkflowPage } from "./WorkflowPage";

const PAGE = 100;

/** Ordered steps that are seen through: all workflows, or the one that the address names. */
export function Workflows() {
  const id = route.value.rest;
  return id === "" ? <WorkflowList /> : <WorkflowPage key={id} id={id} />;
}

function WorkflowList() {
  const [count, setCount] = useState(PAGE);
  const [isStarting, setStarting] = useState(false);
  const { found, problem, look } = useAround("workflow", null, "workflows", () => listWorkflows(count));
  useEffect(() => {
    if (count > PAGE) look();
  }, [count]);
  const add = (
    <button type="button" class="primary" data-testid="workflow-start" onClick={() => setStarting(true)}>
      <Icon name="plus" /> Start a workflow
    </button>
  );
  return (
    <Place title="Workflows" actions={add}>
      <p class="lead">
        A workflow is ordered steps, each a prompt with its retries. It goes on after a crash at the first step without an
        end.
      </p>
      {problem !== null && <PlaceProblem problem={problem} />}
      {found === null && problem === null && <p class="hint">Loading…</p>}
      {found?.found.length === 0 && (
        <Nothing title="No workflows yet">
          <p class="hint">Paste one as YAML: what is wrong with it is said before anything runs.</p>
        </Nothing>
      )}
      <ul class="rows" data-testid="workflows">
        {found?.found.map((brief) => <WorkflowRow key={brief.workflow_id} brief={brief} />)}
      </ul>
      {found !== null && found.next !== null && (
        <button type="button" class="quiet" onClick={() => setCount(count + PAGE)}>
          More workflows
        </button>
      )}
      {isStarting && <StartDialog onClose={() => setStarting(false)} />}
    </Place>
  );
}

function WorkflowRow({ brief }: { brief: WorkflowBrief }) {
  const { workflow_id: id, name, status, why, done, steps } = brief;
  return (
    <li data-testid="workflow" data-workflow-id={id} data-status={status}>
      <a href={hrefOfPlace("workflows", id)} class={`row-link ${status}`}>
        <span class="row-name">
          <bdi>{visibleText(name || id)}</bdi> <bdi class="row-id">{visibleText(shortId(id))}</bdi>
        </span>
        <span class="row-status">
          <Pill tone={TONES[status]} words={workflowWords(status)} status={status} />
        </span>
        <span class="row-says">
          {steps > 0 && `${done} of ${steps} steps`}
          {why !== null && (
            <>
              {steps > 0 && ": "}
              <bdi>{visibleText(why)}</bdi>
            </>
          )}
        </span>
        <span class="row-when">
          <Distance at={brief.ended_at ?? brief.created_at} />
        </span>
      </a>
    </li>
  );
}
