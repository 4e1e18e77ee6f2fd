import { useEffect, useRef, useState } from "preact/hooks";
import { PLACES } from "../shell/places";
import { hrefOfPlace, route } from "../../state/route";
import { filter, isMaking, newSession, setFilter } from "../../state/sessions";
import { ConnectionState } from "../shell/ConnectionState";
import { Icon } from "../part/Icon";
import { SessionList } from "./SessionList";

const TYPING_MS = 200;

const STATUSES: readonly (readonly [string, string])[] = [
  ["", "Any status"],
  ["running", "Running"],
  ["waiting", "Needs approval"],
  ["interrupted", "Interrupted"],
  ["failed", "Failed"],
  ["unrecoverable", "Unrecoverable"],
  ["idle", "Idle"],
];

export function Sidebar() {
  return (
    <nav class="sidebar" aria-label="Sessions">
      <header>
        <a class="brand" href="#">
          <Mark /> Perdure
        </a>
        <ConnectionState />
      </header>
      <div class="new">
        <button type="button" class="primary" data-testid="new-session" onClick={() => void newSession()}>
          <Icon name="plus" /> New session
        </button>
        <button
          type="button"
          class="primary square"
          aria-label="New session, with a loop and runtime of your choice"
          title="Choose its loop and runtime"
          data-testid="new-session-with"
          onClick={() => (isMaking.value = true)}
        >
          <Icon name="more" />
        </button>
      </div>
      <Filter />
      <SessionList />
      {PLACES.length > 0 && (
        <ul class="places">
          {PLACES.map((place) => (
            <li key={place.name}>
              <a
                href={hrefOfPlace(place.name)}
                aria-current={route.value.place === place.name ? "page" : undefined}
                data-testid={`place-${place.name}`}
              >
                {place.title}
              </a>
            </li>
          ))}
        </ul>
      )}
    </nav>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="9" />
      <path d="M11 8v16M11 16h6a4 4 0 0 0 0-8h-6" />
      <circle cx="22" cy="23" r="2.2" />
    </svg>
  );
}

/** By a part of the id or the title, and by status; the server searches all of them. */
function Filter() {
  const [match, setMatch] = useState(filter.value.match);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setMatch(filter.value.match), [filter.value.match]);
  return (
    <div class="filter" role="search">
      <label class="search">
        <Icon name="search" size={14} />
        <input
          type="search"
          placeholder="Find a session"
          aria-label="Find a session by its id or its beginning"
          data-testid="filter"
          value={match}
          onInput={(event) => {
            const typed = event.currentTarget.value;
            setMatch(typed);
            clearTimeout(timer.current);
            timer.current = setTimeout(() => setFilter({ match: typed.trim() }), TYPING_MS);
          }}
        />
      </label>
      <select
        aria-label="Only sessions of this status"
        data-testid="filter-status"
        value={filter.value.status}
        onChange={(event) => setFilter({ status: event.currentTarget.value })}
      >
        {STATUSES.map(([status, words]) => (
          <option key={status} value={status}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}
