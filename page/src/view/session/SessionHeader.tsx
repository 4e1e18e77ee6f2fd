import type { Look } from "../../net/wire";
import { connection } from "../../state/feed";
import { hrefOf, hrefOfPlace, route } from "../../state/route";
import { shortId } from "../../text/format";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";
import { SessionMenu } from "./SessionMenu";
import { SESSION_VIEWS } from "./views";

interface SessionHeaderProps {
  id: string;
  name: string;
  status: string | null;
  look: Look | null;
}

const WORDS: Record<string, string> = { waiting: "needs approval" };

export function SessionHeader({ id, name, status, look }: SessionHeaderProps) {
  const { view } = route.value;
  const isView = SESSION_VIEWS.some((each) => each.name === view);
  const parentId = look?.parent_id;
  return (
    <header class="session-header">
      <a class="back square" href="#" aria-label="All sessions">
        <Icon name="left" />
      </a>
      <div class="session-name">
        <h1 title={id}>
          <bdi>{visibleText(name)}</bdi>
        </h1>
        <p>
          {name !== id && name !== shortId(id) && <code>{shortId(id)}</code>}
          {look?.loop && (
            <span data-testid="session-loop">
              with <bdi>{visibleText(look.loop)}</bdi>
            </span>
          )}
          {look?.runtime && (
            <span data-testid="session-runtime">
              tools in <a href={hrefOfPlace("runtimes")}><bdi>{visibleText(look.runtime)}</bdi></a>
            </span>
          )}
          {parentId && (
            <span>
              forked from <a href={hrefOf(parentId)}><bdi>{visibleText(shortId(parentId))}</bdi></a>
            </span>
          )}
        </p>
      </div>
      {connection.value !== "live" && (
        <span class={`connection narrow ${connection.value}`} aria-hidden="true">
          offline
        </span>
      )}
      {status !== null && (
        <span class={`status ${status}`} data-testid="session-status" data-status={status}>
          {WORDS[status] ?? status}
        </span>
      )}
      {status !== null && (
        <nav class="tabs" aria-label="Views of this session">
          <a href={hrefOf(id)} aria-current={isView ? undefined : "page"}>
            Conversation
          </a>
          {SESSION_VIEWS.map((each) => (
            <a key={each.name} href={hrefOf(id, each.name)} aria-current={each.name === view ? "page" : undefined} data-testid={`view-${each.name}`}>
              {each.title}
            </a>
          ))}
        </nav>
      )}
      {status !== null && status !== "deleted" && <SessionMenu id={id} status={status} />}
    </header>
  );
}
