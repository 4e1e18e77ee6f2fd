import { connection } from "../../state/feed";
import { isSignedOut } from "../../state/notice";

const WORDS = { live: "live", connecting: "connecting…", lost: "reconnecting…" };

/** The state of the stream, in words and not by colour alone. */
export function ConnectionState() {
  const state = isSignedOut.value ? "lost" : connection.value;
  return (
    <span class={`connection ${state}`} data-testid="connection" data-state={state}>
      {isSignedOut.value ? "signed out" : WORDS[state]}
    </span>
  );
}
