import { useState } from "preact/hooks";
import { commandStep, type Step, type StepAnswer, type Workflow } from "../../net/around";
import { attempt } from "../../state/notice";
import { hrefOfPlace } from "../../state/route";
import { showSpan } from "../../text/span";
import { visibleCode, visibleText } from "../../text/visible";
import { Fold } from "../part/Fold";
import { Facts } from "../place/Facts";
import { Pill } from "../place/Pill";
import { Distance, Moment } from "../place/When";
import { AttemptRow } from "./AttemptRow";
import { ReasonDialog } from "./ReasonDialog";
import { isOver, STEP_TONES, stepWords } from "./words";

interface StepDetailProps {
  workflow: Workflow;
  step: Step;
  onChanged(): void;
}

/** One step: how it stands, what can be done about that, and each attempt at it. */
export function StepDetail({ workflow, step, onChanged }: StepDetailProps) {
  const { attempts, cause, status } = step;
  const id = workflow.workflow_id;
  return (
    <section aria-labelledby="step" data-testid="step" data-step={step.step} data-status={status}>
      <header class="step-head">
        <h2 id="step">
          <bdi>{visibleText(step.title ?? step.step)}</bdi>
        </h2>
        <Pill tone={STEP_TONES[status]} words={stepWords(step)} status={status} testId="step-status" />
      </header>
      {cause !== null && status !== "completed" && (
        <p class={status === "failed" || status === "retrying" ? "trouble" : "remark"} data-testid="step-cause">
          {visibleText(cause)}
        </p>
      )}
      {step.retry_at !== null && status === "retrying" && (
        <p class="remark">
          Attempt {attempts.length + 1} of {step.most_attempts} starts <Distance at={step.retry_at} />.
        </p>
      )}
      <StepActions workflow={workflow} step={step} onChanged={onChanged} />
      {(attempts.length > 1 || status === "failed" || status === "retrying") && attempts.length > 0 && (
        <p class="hint" data-testid="not-a-rollback">
          {workflow.note}
        </p>
      )}
      <Facts
        items={[
          ["After", step.needs.length > 0 && <Links id={id} steps={step.needs} />],
          ["Runs if", step.undoes.length > 0 && <><Links id={id} steps={step.undoes} /> failed</>],
          ["Undone by", step.compensate !== null && <Links id={id} steps={[step.compensate]} />],
          ["Check", step.check !== null && <code dir="ltr">{visibleCode(step.check)}</code>],
          ["Attempts", `at most ${step.most_attempts}`],
          ["Each takes", step.limit_s !== null && `at most ${showSpan(step.limit_s)}`],
          ["Loop", step.loop && <bdi>{visibleText(step.loop)}</bdi>],
          ["Runtime", step.runtime && <bdi>{visibleText(step.runtime)}</bdi>],
          ["Session", step.session !== null && <><bdi>{visibleText(step.session)}</bdi>, shared</>],
        ]}
      />
      <Fold class="aside-fold" summary="What it is asked" isOpen={attempts.length === 0} testId="step-prompt">
        {() => (
          <p class="prompt" dir="auto">
            {visibleText(step.prompt)}
          </p>
        )}
      </Fold>
      {step.answers.length > 0 && (
        <ul class="answers">
          {step.answers.map((answer, index) => (
            <Answer key={index} answer={answer} />
          ))}
        </ul>
      )}
      {attempts.length > 0 && (
        <ol class="attempts" data-testid="attempts" aria-label="Attempts, newest first">
          {[...attempts].reverse().map((each, index) => (
            <AttemptRow key={each.attempt} attempt={each} isNewest={index === 0} said={cause} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Links({ id, steps }: { id: string; steps: readonly string[] }) {
  return (
    <>
      {steps.map((step, index) => (
        <span key={step}>
          {index > 0 && ", "}
          <a href={hrefOfPlace("workflows", id, step)}>
            <bdi>{visibleText(step)}</bdi>
          </a>
        </span>
      ))}
    </>
  );
}

const SAID: Record<StepAnswer["answer"], string> = { approve: "Approved", reject: "Refused", skip: "Skipped" };

function Answer({ answer: { answer, by, at, reason } }: { answer: StepAnswer }) {
  return (
    <li>
      {SAID[answer]}
      {by !== null && (
        <>
          {" "}
          by <bdi>{visibleText(by)}</bdi>
        </>
      )}
      , <Moment at={at} />
      {reason !== null && reason !== "" && (
        <>
          : <bdi>{visibleText(reason)}</bdi>
        </>
      )}
    </li>
  );
}

function StepActions({ workflow, step, onChanged }: StepDetailProps) {
  const [open, setOpen] = useState<"skip" | "reject" | null>(null);
  const { workflow_id: id, status: whole } = workflow;
  const { step: name, status } = step;
  const does = async (verb: () => Promise<unknown>): Promise<void> => {
    if (await attempt(verb)) onChanged();
  };
  const isClosed = whole === "cancelling" || whole === "cancelled";
  const isLeftOut = isOver(whole) && whole !== "completed" && status === "pending" && step.undoes.length === 0;
  const canRetry = whole !== "cancelling" && (isLeftOut || status === "failed" || status === "skipped" || status === "retrying" || status === "completed");
  const canSkip = !isClosed && status !== "completed" && status !== "skipped" && status !== "running" && !(isOver(whole) && status === "pending");
  if (status !== "waiting" && !canRetry && !canSkip) return null;
  return (
    <div class="step-actions">
      {status === "waiting" && (
        <>
          <button type="button" class="primary" data-testid="step-approve" onClick={() => void does(() => commandStep(id, name, "approve", { approve: true }))}>
            Approve
          </button>
          <button type="button" data-testid="step-reject" onClick={() => setOpen("reject")}>
            Refuse…
          </button>
        </>
      )}
      {canRetry && (
        <button type="button" data-testid="step-retry" title="Runs it again, and what follows from it" onClick={() => void does(() => commandStep(id, name, "retry"))}>
          {isLeftOut ? "Go on here" : "Retry"}
        </button>
      )}
      {canSkip && (
        <button type="button" data-testid="step-skip" onClick={() => setOpen("skip")}>
          Skip…
        </button>
      )}
      {open === "skip" && (
        <ReasonDialog
          title={`Skip “${name}”?`}
          verb="Skip it"
          isRequired
          onReason={(reason) => commandStep(id, name, "skip", { reason })}
          onDone={onChanged}
          onClose={() => setOpen(null)}
        >
          It counts as done, without an output: the steps that wait for it go on.
        </ReasonDialog>
      )}
      {open === "reject" && (
        <ReasonDialog
          title={`Refuse “${name}”?`}
          verb="Refuse it"
          onReason={(reason) => commandStep(id, name, "approve", { approve: false, ...(reason !== "" && { reason }) })}
          onDone={onChanged}
          onClose={() => setOpen(null)}
        >
          The step fails without an attempt, and so does the workflow.
        </ReasonDialog>
      )}
    </div>
  );
}
