import { useEffect } from "preact/hooks";
import { isReader } from "../../state/me";
import { isSignedOut } from "../../state/notice";
import { route, sessionId } from "../../state/route";
import { isMaking } from "../../state/sessions";
import { ForkDialog } from "../session/ForkDialog";
import { SessionPage } from "../session/SessionPage";
import { Sidebar } from "../sessions/Sidebar";
import { Announcer } from "./Announcer";
import { Home } from "./Home";
import { Keys } from "./Keys";
import { Notice } from "./Notice";
import { NewSessionDialog, PLACES } from "./places";
import { SignIn } from "./SignIn";

/** The page: the list at its side, what is chosen beside it, and what stands above both. */
export function App() {
  const { place } = route.value;
  const id = sessionId.value;
  const chosen = PLACES.find((each) => each.name === place);
  useEffect(() => {
    if (id === null) document.title = chosen === undefined ? "Perdure" : `${chosen.title} · Perdure`;
  }, [id, chosen]);
  return (
    <div class={isReader.value ? "app reader" : "app"} data-view={id === null && chosen === undefined ? "list" : "session"}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the conversation
      </a>
      <Sidebar />
      {id !== null ? <SessionPage id={id} key={id} /> : chosen !== undefined ? <chosen.Component /> : <Home />}
      <ForkDialog />
      {isMaking.value && <NewSessionDialog />}
      <Notice />
      {isSignedOut.value && <SignIn />}
      <Keys />
      <Announcer />
    </div>
  );
}

/** The hash is where the page is, so this link moves the focus and not the address. */
function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>("[data-testid=composer], main")?.focus();
}
