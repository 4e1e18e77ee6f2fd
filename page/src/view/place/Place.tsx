import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Problem } from "../../net/problem";
import { hrefOfPlace } from "../../state/route";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

interface PlaceProps {
  title: string;
  /** The place that this is a part of: its name and title. */
  within?: readonly [name: string, title: string];
  status?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** The frame of a place beside the sessions: what it is, what can be done, and what there is. */
export function Place({ title, within, status, actions, children }: PlaceProps) {
  const said = visibleText(title);
  useEffect(() => {
    document.title = `${said} · Perdure`;
  }, [said]);
  return (
    <main id="main" class={within === undefined ? "session place" : "session place one"} tabIndex={-1} aria-label={said}>
      <header class="session-header">
        <a class="back square" href={within === undefined ? "#" : hrefOfPlace(within[0])} aria-label={within === undefined ? "All sessions" : within[1]}>
          <Icon name="left" />
        </a>
        <div class="session-name">
          <h1 title={title}>
            {within !== undefined && (
              <span class="crumb">
                <a href={hrefOfPlace(within[0])}>{within[1]}</a>
                <span aria-hidden="true"> / </span>
              </span>
            )}
            <bdi>{said}</bdi>
          </h1>
        </div>
        {status}
        {actions !== undefined && <div class="place-actions">{actions}</div>}
      </header>
      <div class="scroller" tabIndex={0} role="region" aria-label={said}>
        <div class="place-content">{children}</div>
      </div>
    </main>
  );
}

/** Why there is nothing to be shown. */
export function PlaceProblem({ problem }: { problem: Problem }) {
  return (
    <div class="place-problem" data-testid="place-problem">
      <h2>{problem.status === 404 ? "It is not there" : "It cannot be shown"}</h2>
      <p class="hint">{visibleText(problem.message)}</p>
    </div>
  );
}

/** Where there is none of something yet: what it is, and how there comes to be one. */
export function Nothing({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="nothing" data-testid="nothing">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
