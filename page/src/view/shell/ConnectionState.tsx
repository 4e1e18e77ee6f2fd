import { connection } from "../../state/feed";

const WORDS = { live: "live", connecting: "connecting…", lost: "reconnecting…" };

/** The state of the stream, in words and not by colour alone. */
export function ConnectionState() {
  const state = connection.value;
  return (
    <span class={`connection ${state}`} data-testid="connection" data-state={state}>
      {WORDS[state]}
    </span>
  );
}
