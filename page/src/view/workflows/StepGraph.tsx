import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { type GraphStep, layOut, NODE_HEIGHT, NODE_WIDTH, pathOf } from "../../model/graph";
import { visibleText } from "../../text/visible";
import type { Tone } from "../place/Pill";

export interface ShownStep extends GraphStep {
  title: string;
  words: string;
  tone: Tone;
  isDone: boolean;
  isRunning: boolean;
  /** Where it leads; null leads nowhere. */
  href: string | null;
  isChosen: boolean;
}

interface StepGraphProps {
  steps: readonly ShownStep[];
  label: string;
}

/**
 * Steps in layers, with lines to those that wait for them.
 *
 * It is a list, in the order of the workflow: who hears it is told of each step what it waits for,
 * and the lines are for who sees them. Arrow keys go along the list.
 */
export function StepGraph({ steps, label }: StepGraphProps) {
  const shape = JSON.stringify(steps.map(({ id, needs, undoes }) => [id, needs, undoes]));
  const graph = useMemo(() => layOut(steps), [shape]);
  const frame = useRef<HTMLOListElement>(null);
  const view = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    // What is chosen is seen, and as much before it as there is room for.
    const chosen = view.current?.querySelector<HTMLElement>("[aria-current]")?.parentElement ?? null;
    if (view.current === null || chosen === null) return;
    view.current.scrollLeft = chosen.offsetLeft + chosen.offsetWidth + 32 - view.current.clientWidth;
  }, [graph]);
  const byId = new Map(steps.map((step) => [step.id, step]));
  const onKeyDown = (event: KeyboardEvent): void => {
    const links = [...(frame.current?.querySelectorAll<HTMLElement>("a") ?? [])];
    const at = links.indexOf(document.activeElement as HTMLElement);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: links.length - 1 };
    const to = links[steps[event.key] ?? -1];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    to.focus();
  };
  return (
    <div class="graph" ref={view} tabIndex={0} role="region" aria-label={label}>
      <div class="graph-ground" style={{ width: `${graph.width}px`, height: `${graph.height}px` }}>
        <svg viewBox={`0 0 ${graph.width} ${graph.height}`} width={graph.width} height={graph.height} aria-hidden="true" focusable="false">
          {graph.edges.map((edge) => (
            <path key={`${edge.from}>${edge.to}`} class={edge.isUndo ? "undo" : byId.get(edge.from)?.isDone ? "done" : undefined} d={pathOf(edge)} />
          ))}
        </svg>
        <ol ref={frame} onKeyDown={onKeyDown} data-testid="graph">
          {graph.nodes.map(({ id, x, y }) => {
            const step = byId.get(id) as ShownStep;
            return (
              <li key={id} style={{ insetInlineStart: `${x}px`, top: `${y}px`, width: `${NODE_WIDTH}px`, height: `${NODE_HEIGHT}px` }}>
                <Box step={step}>
                  <b>
                    <bdi>{visibleText(step.title)}</bdi>
                  </b>
                  <span>{step.words}</span>
                  <span class="unseen">{waitsFor(step, byId)}</span>
                </Box>
              </li>
            );
          })}
        </ol>
      </div>
    </div>
  );
}

function Box({ step, children }: { step: ShownStep; children: ComponentChildren }) {
  const name = `step-box ${step.tone}${step.isRunning ? " now" : ""}`;
  if (step.href === null) return <div class={name}>{children}</div>;
  return (
    <a class={name} href={step.href} aria-current={step.isChosen ? "true" : undefined} data-testid="graph-step" data-step={step.id}>
      {children}
    </a>
  );
}

function waitsFor({ needs, undoes = [] }: ShownStep, byId: ReadonlyMap<string, ShownStep>): string {
  const say = (ids: readonly string[]): string => ids.map((id) => visibleText(byId.get(id)?.title ?? id)).join(", ");
  if (undoes.length > 0) return `(runs if one of these has failed: ${say(undoes)})`;
  return needs.length > 0 ? `(after ${say(needs)})` : "(waits for nothing)";
}
