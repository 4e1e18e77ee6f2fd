import { useEffect, useRef, useState } from "preact/hooks";
import { checkWorkflow, startWorkflow, type WorkflowPlan } from "../../net/around";
import { type Fault, Problem } from "../../net/problem";
import { loadDraft, newKey, saveDraft } from "../../state/draft";
import { go, hrefOfPlace } from "../../state/route";
import { plural } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Dialog } from "../part/Dialog";
import { StepGraph } from "./StepGraph";

/** A session's id has no tab, so no draft of a message has this name. */
const DRAFT = "\tworkflow";
const TYPING_MS = 300;
const MISSING_INPUT = /^inputs\.([A-Za-z_][\w-]*)$/;

const EXAMPLE = `name: release
inputs:
  version:
    description: what is released
steps:
  - id: build
    prompt: Build version {{ inputs.version }}, and say where it is.
  - id: notes
    after: []
    prompt: Write the notes of version {{ inputs.version }}.
  - id: publish
    after: [build, notes]
    prompt: Publish {{ steps.build.output }}.
    approve: true
`;

interface Written {
  yaml: string;
  inputs: Record<string, string>;
}

function startText(): Written {
  try {
    const draft = JSON.parse(loadDraft(DRAFT).text || "{}") as Partial<Written>;
    return { yaml: draft.yaml ?? "", inputs: draft.inputs ?? {} };
  } catch {
    return { yaml: "", inputs: {} }; // it is of another version of the page
  }
}

/** As the command line reads it: JSON where it is some, else a text. */
function readValue(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

interface Checked {
  plan: WorkflowPlan | null;
  faults: readonly Fault[];
}

/** Starts a workflow that is pasted as YAML; what is wrong with it is said while it is written. */
export function StartDialog({ onClose }: { onClose(): void }) {
  const [text, setText] = useState(startText);
  const [checked, setChecked] = useState<Checked | null>(null);
  const [names, setNames] = useState<readonly string[]>(() => Object.keys(text.inputs));
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const id = useRef(newKey());
  const isEmpty = text.yaml.trim() === "";
  const inputs = Object.fromEntries(names.filter((name) => text.inputs[name] !== undefined && text.inputs[name] !== "").map((name) => [name, readValue(text.inputs[name] ?? "")]));

  const write = (changed: Partial<Written>): void => {
    const next = { ...text, ...changed };
    setText(next);
    id.current = newKey();
    saveDraft(DRAFT, { text: JSON.stringify(next), key: null });
  };
  const take = (error: unknown): void => {
    const said = error instanceof Error ? error.message : String(error);
    const faults = error instanceof Problem && error.faults.length > 0 ? error.faults : [{ line: null, field: "", detail: said }];
    const missing = faults.flatMap((fault) => MISSING_INPUT.exec(fault.field)?.[1] ?? []);
    setNames((known) => [...new Set([...known, ...missing])]);
    setChecked({ plan: null, faults });
  };
  const asked = JSON.stringify([text.yaml, inputs]);
  useEffect(() => {
    if (isEmpty) {
      setChecked(null);
      return undefined;
    }
    let isOver = false;
    const timer = setTimeout(() => {
      checkWorkflow({ yaml: text.yaml, inputs }).then(
        (plan) => {
          if (isOver) return;
          setNames(Object.keys(plan.inputs));
          setChecked({ plan, faults: [] });
        },
        (error: unknown) => {
          if (!isOver) take(error);
        },
      );
    }, TYPING_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [asked]);

  const start = async (): Promise<void> => {
    if (isBusy) return;
    setBusy(true);
    try {
      const started = await startWorkflow({ yaml: text.yaml, inputs, workflow_id: id.current });
      saveDraft(DRAFT, null);
      onClose();
      go(hrefOfPlace("workflows", started.workflow_id));
    } catch (error) {
      take(error);
      setBusy(false);
    }
  };
  const goTo = (line: number): void => {
    const lines = text.yaml.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    field.current?.focus();
    field.current?.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
  };

  return (
    <Dialog
      title="Start a workflow"
      class="wide"
      onClose={onClose}
      onSubmit={() => void start()}
      testId="start-dialog"
      actions={
        <>
          {isEmpty && (
            <button type="button" class="quiet" data-testid="workflow-example" onClick={() => write({ yaml: EXAMPLE })}>
              Put in an example
            </button>
          )}
          <span class="space" />
          <button
            type="button"
            data-testid="workflow-discard"
            onClick={() => {
              saveDraft(DRAFT, null);
              onClose();
            }}
          >
            Discard
          </button>
          <button type="submit" class="primary" disabled={isBusy || checked?.plan == null} data-testid="workflow-confirm">
            Start it
          </button>
        </>
      }
    >
      <label>
        The workflow, as YAML
        <textarea
          ref={field}
          class="mono"
          rows={12}
          dir="ltr"
          spellcheck={false}
          required
          data-testid="workflow-yaml"
          value={text.yaml}
          onInput={(event) => write({ yaml: event.currentTarget.value })}
        />
      </label>
      {names.length > 0 && (
        <fieldset class="inputs">
          <legend>What it is given</legend>
          <div class="field-pair">
            {names.map((name) => (
              <label key={name}>
                {name}
                <input
                  dir="auto"
                  data-testid={`input-${name}`}
                  value={text.inputs[name] ?? ""}
                  placeholder={defaultOf(checked?.plan, name)}
                  onInput={(event) => write({ inputs: { ...text.inputs, [name]: event.currentTarget.value } })}
                />
              </label>
            ))}
          </div>
        </fieldset>
      )}
      {checked !== null && <Found checked={checked} onLine={goTo} />}
    </Dialog>
  );
}

function defaultOf(plan: WorkflowPlan | null | undefined, name: string): string {
  const value = plan?.inputs[name];
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function Found({ checked: { plan, faults }, onLine }: { checked: Checked; onLine(line: number): void }) {
  if (plan === null) {
    return (
      <div class="forecast wrong" data-testid="workflow-faults">
        <output>{faults.length === 1 ? "One thing is wrong." : `${faults.length} things are wrong.`}</output>
        <ul class="faults">
          {faults.map(({ line, field, detail }, index) => (
            <li key={index}>
              {line !== null && (
                <button type="button" class="link" onClick={() => onLine(line)}>
                  Line {line}
                </button>
              )}
              {field !== "" && <code dir="ltr">{visibleText(field)}</code>} <span>{visibleText(detail)}</span>
            </li>
          ))}
        </ul>
      </div>
    );
  }
  const steps = plan.steps.map(({ step, needs }) => ({
    id: step,
    needs,
    title: step,
    words: "",
    tone: "calm" as const,
    isDone: false,
    isRunning: false,
    href: null,
    isChosen: false,
  }));
  return (
    <div class="forecast" data-testid="workflow-plan">
      <output>
        <bdi>{visibleText(plan.name)}</bdi>: {plural(steps.length, "step")}, nothing is wrong.
      </output>
      <StepGraph steps={steps} label="The steps that it will have" />
    </div>
  );
}
