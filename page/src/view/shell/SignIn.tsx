import { useEffect, useRef, useState } from "preact/hooks";
import { signIn } from "../../net/api";
import { wakeFeed } from "../../state/feed";
import { isSignedOut } from "../../state/notice";
import { open } from "../../state/session";

/** The server does not know this browser: how to sign in, above a page that keeps its drafts. */
export function SignIn() {
  const [address, setAddress] = useState("");
  const [problem, setProblem] = useState("");
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close();
  }, []);
  const enter = async (): Promise<void> => {
    try {
      await signIn(address);
      isSignedOut.value = false;
      wakeFeed();
      await open();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <dialog ref={dialog} class="sign-in" aria-label="Not signed in" data-testid="unauthorised" onCancel={(event) => event.preventDefault()}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void enter();
        }}
      >
        <h2>Not signed in</h2>
        <p>
          The server does not know this browser, or no longer does. Paste the address that <code>perdure serve</code>{" "}
          printed when it started. Drafts are kept, and the page goes on where it was.
        </p>
        <label>
          Address or token
          <input
            type="password"
            autocomplete="off"
            required
            value={address}
            data-testid="sign-in-token"
            onInput={(event) => setAddress(event.currentTarget.value)}
          />
        </label>
        {problem !== "" && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <div class="actions">
          <button type="submit" class="primary" data-testid="sign-in">
            Sign in
          </button>
        </div>
      </form>
    </dialog>
  );
}
