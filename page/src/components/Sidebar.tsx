import { sessionName, shortId, showTime } from "../format";
import { connection, hrefOf, listing, loadMoreSessions, newSession, sessionId } from "../store";
import type { Look } from "../wire";

export function Sidebar() {
  const { sessions, next, isLoaded } = listing.value;
  return (
    <nav class="sidebar" aria-label="Sessions">
      <header>
        <span class="brand">Perdure</span>
        <ConnectionState />
      </header>
      <button type="button" class="primary" data-testid="new-session" onClick={() => void newSession()}>
        New session
      </button>
      <ul class="sessions" data-testid="session-list">
        {sessions.map((look) => (
          <SessionItem key={look.session_id} look={look} />
        ))}
      </ul>
      {isLoaded && sessions.length === 0 && <p class="hint">No sessions yet.</p>}
      {next !== null && (
        <button type="button" class="quiet" data-testid="more-sessions" onClick={() => void loadMoreSessions()}>
          Older sessions
        </button>
      )}
    </nav>
  );
}

function SessionItem({ look }: { look: Look }) {
  const id = look.session_id;
  const isShown = id === sessionId.value;
  const name = sessionName(id, look.created_at);
  const rest = name === id ? showTime(look.last_activity ?? look.created_at) : shortId(id);
  return (
    <li data-testid="session-item" data-session-id={id} data-status={look.status}>
      <a href={hrefOf(id)} aria-current={isShown ? "page" : undefined} title={id}>
        <span class={`dot ${look.status}`} aria-hidden="true" />
        <span class="name">{name}</span>
        <span class="rest">{look.status === "idle" ? rest : look.status}</span>
      </a>
    </li>
  );
}

const WORDS = { live: "live", connecting: "connecting…", lost: "reconnecting…" };

export function ConnectionState() {
  const state = connection.value;
  return (
    <span class={`connection ${state}`} role="status" data-testid="connection" data-state={state}>
      {WORDS[state]}
    </span>
  );
}
