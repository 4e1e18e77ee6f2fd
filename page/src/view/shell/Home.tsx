import { isFiltered, listing, newSession } from "../../state/sessions";
import { Icon } from "../part/Icon";

/** Where nothing is chosen. */
export function Home() {
  const { isLoaded, sessions, next } = listing.value;
  const isEmpty = isLoaded && sessions.length === 0 && next === null && !isFiltered();
  return (
    <main id="main" class="blank" tabIndex={-1}>
      <h1>{isEmpty ? "Nothing is kept here yet" : "Choose a session"}</h1>
      <p class="hint">
        {isEmpty
          ? "A session is one conversation with an agent. Everything that is said and done in it is kept, in order."
          : "They are listed by their newest activity. What runs goes on running, whether somebody looks or not."}
      </p>
      <p>
        <button type="button" onClick={() => void newSession()}>
          <Icon name="plus" /> New session
        </button>
      </p>
      <p class="hint keys-hint">
        <kbd>?</kbd> shows the keys
      </p>
    </main>
  );
}
