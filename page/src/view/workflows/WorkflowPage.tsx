import { useEffect, useRef, useState } from "preact/hooks";
import { commandWorkflow, deleteWorkflow, readWorkflow, type Step, type Workflow } from "../../net/around";
import { now, useAround } from "../../state/around";
import { attempt, say } from "../../state/notice";
import { go, hrefOfPlace, route } from "../../state/route";
import { showElapsed } from "../../text/span";
import { visibleCode, visibleText } from "../../text/visible";
import { Copy } from "../part/Copy";
import { Fold } from "../part/Fold";
import { Menu } from "../part/Menu";
import { ConfirmDialog } from "../place/ConfirmDialog";
import { Facts } from "../place/Facts";
import { Pill } from "../place/Pill";
import { Place, PlaceProblem } from "../place/Place";
import { Moment } from "../place/When";
import { StepDetail } from "./StepDetail";
import { StepGraph } from "./StepGraph";
import { isOver, STEP_TONES, stepWords, TONES, workflowWords } from "./words";

const WITHIN = ["workflows", "Workflows"] as const;

/** One workflow: its steps as a graph, and what became of each. */
export function WorkflowPage({ id }: { id: string }) {
  const { found, problem, look } = useAround("workflow", id, id, () => readWorkflow(id));
  const chosenId = route.value.more;
  const detail = useRef<HTMLDivElement>(null);
  const isThere = found !== null;
  useEffect(() => {
    // Where both do not fit side by side, what was chosen is brought into view.
    if (isThere && chosenId !== "") detail.current?.scrollIntoView({ block: "nearest" });
  }, [isThere, chosenId]);
  if (found === null) {
    return (
      <Place title={id} within={WITHIN}>
        {problem === null ? <p class="hint">Loading…</p> : <PlaceProblem problem={problem} />}
      </Place>
    );
  }
  const chosen = found.steps.find(({ step }) => step === chosenId) ?? mostTelling(found.steps);
  const counted = found.steps.filter((step) => step.undoes.length === 0 || step.status !== "pending" || step.attempts.length > 0);
  const shown = found.steps.map((step) => ({
    id: step.step,
    needs: step.needs,
    undoes: step.undoes,
    title: step.title ?? step.step,
    words: stepWords(step),
    tone: STEP_TONES[step.status],
    isDone: step.status === "completed" || step.status === "skipped",
    isRunning: step.status === "running",
    href: hrefOfPlace("workflows", id, step.step),
    isChosen: step === chosen,
  }));
  return (
    <Place
      title={found.name}
      within={WITHIN}
      status={<Pill tone={TONES[found.status]} words={workflowWords(found.status)} status={found.status} testId="workflow-status" />}
      actions={<Actions workflow={found} onChanged={look} />}
    >
      {found.why !== null && (
        <p class={found.status === "failed" ? "trouble" : "remark"} data-testid="workflow-why">
          {visibleText(found.why)}
        </p>
      )}
      {found.description !== null && <p class="lead">{visibleText(found.description)}</p>}
      <div class="two-columns workflow">
        <section class="first" aria-labelledby="steps">
          <h2 id="steps">
            Steps <span class="hint">{counted.filter(({ status }) => status === "completed" || status === "skipped").length} of {counted.length} done</span>
          </h2>
          <StepGraph steps={shown} label="Steps and what they wait for" />
        </section>
        <div ref={detail} class="detail">
          {chosen !== undefined && <StepDetail key={chosen.step} workflow={found} step={chosen} onChanged={look} />}
        </div>
        <About workflow={found} />
      </div>
    </Place>
  );
}

/** The step that somebody would look at first. */
function mostTelling(steps: readonly Step[]): Step | undefined {
  for (const status of ["waiting", "failed", "running", "retrying"]) {
    const found = steps.find((step) => step.status === status);
    if (found !== undefined) return found;
  }
  return steps.findLast(({ attempts }) => attempts.length > 0) ?? steps[0];
}

function Actions({ workflow, onChanged }: { workflow: Workflow; onChanged(): void }) {
  const [open, setOpen] = useState<"cancel" | "delete" | null>(null);
  const { workflow_id: id, status } = workflow;
  const close = (): void => setOpen(null);
  const command = async (verb: "pause" | "resume"): Promise<void> => {
    if (await attempt(() => commandWorkflow(id, verb))) onChanged();
  };
  const isEnded = isOver(status);
  return (
    <>
      {(status === "running" || status === "waiting") && (
        <button type="button" data-testid="workflow-pause" title="Starts no further attempt; those that run go on to their end" onClick={() => void command("pause")}>
          Pause
        </button>
      )}
      {status === "paused" && (
        <button type="button" class="primary" data-testid="workflow-resume" onClick={() => void command("resume")}>
          Resume
        </button>
      )}
      {!isEnded && status !== "cancelling" && (
        <button type="button" class="danger" data-testid="workflow-cancel" onClick={() => setOpen("cancel")}>
          Cancel…
        </button>
      )}
      <Menu
        label="Workflow menu"
        testId="workflow-menu"
        items={[
          {
            label: "Delete…",
            testId: "workflow-delete",
            isDanger: true,
            isDisabled: !isEnded,
            hint: isEnded ? undefined : "once it is over",
            onChoose: () => setOpen("delete"),
          },
        ]}
      />
      {open === "cancel" && (
        <ConfirmDialog title="Cancel this workflow?" verb="Cancel it" keep="Let it go on" onConfirm={() => commandWorkflow(id, "cancel")} onDone={onChanged} onClose={close}>
          <ul class="losses">
            <li>The turns that run now are stopped, and no step starts any more</li>
            <li>Nothing that was done is undone, and no compensation step runs</li>
          </ul>
        </ConfirmDialog>
      )}
      {open === "delete" && (
        <ConfirmDialog
          title="Delete this workflow?"
          verb="Delete it"
          keep="Keep it"
          onConfirm={() => deleteWorkflow(id)}
          onDone={() => {
            say("The workflow is deleted.");
            go(hrefOfPlace("workflows"));
          }}
          onClose={close}
        >
          <p>
            “<bdi>{visibleText(workflow.name)}</bdi>” and the history of its attempts will be gone. This cannot be taken back.
          </p>
          <ul class="losses">
            <li>Its sessions stay, with all that was said in them</li>
          </ul>
        </ConfirmDialog>
      )}
    </>
  );
}

function About({ workflow }: { workflow: Workflow }) {
  const { inputs, source, workflow_id: id, owner } = workflow;
  const given = Object.entries(inputs);
  return (
    <div class="about">
      <Facts
        items={[
          ["Id", <bdi>{visibleText(id)}</bdi>],
          ["Started", <Moment at={workflow.created_at} />],
          ["Took", workflow.ended_at !== null && showElapsed(workflow.created_at, workflow.ended_at, now.value)],
          ["Owner", owner && <bdi>{visibleText(owner)}</bdi>],
          ...given.map(([name, value]) => [name, <code dir="auto">{visibleCode(typeof value === "string" ? value : JSON.stringify(value))}</code>] as const),
        ]}
      />
      {source !== null && (
        <Fold class="aside-fold" summary="As it was written" testId="workflow-source">
          {() => (
            <div class="code">
              <pre dir="ltr" tabIndex={0}>
                {visibleCode(source)}
              </pre>
              <Copy label="Copy the workflow" text={() => source} />
            </div>
          )}
        </Fold>
      )}
    </div>
  );
}
