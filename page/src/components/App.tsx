import { useEffect } from "preact/hooks";
import { isUnauthorised, notice, sessionId } from "../store";
import { SessionView } from "./SessionView";
import { Sidebar } from "./Sidebar";

export function App() {
  if (isUnauthorised.value) return <Unauthorised />;
  return (
    <div class="app" data-view={sessionId.value === null ? "list" : "session"}>
      <Sidebar />
      <SessionView />
      <Notice />
    </div>
  );
}

function Unauthorised() {
  return (
    <main class="blank" data-testid="unauthorised">
      <h1>Not signed in</h1>
      <p>
        Open the URL that the server printed when it started. It signs this browser in; the address
        without its token does not.
      </p>
      <p>
        <button type="button" onClick={() => location.reload()}>
          Try again
        </button>
      </p>
    </main>
  );
}

const SHOWN_MS = 8_000;

function Notice() {
  const shown = notice.value;
  useEffect(() => {
    if (shown === null) return undefined;
    const timer = setTimeout(() => {
      if (notice.value === shown) notice.value = null;
    }, SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  if (shown === null) return null;
  return (
    <div class={shown.isError ? "notice error" : "notice"} role="status" data-testid="notice">
      <span>{shown.text}</span>
      <button type="button" class="quiet" aria-label="Close" onClick={() => (notice.value = null)}>
        ×
      </button>
    </div>
  );
}
