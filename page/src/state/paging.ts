/** The pages before and after what is loaded, of the active path or of the branch that is read. */
import * as api from "../net/api";
import { Problem } from "../net/problem";
import { attempt } from "./notice";
import { loadNewerOf, loadOlderOf, reading } from "./reading";
import { dispatch, PAGE, session, showNewest } from "./session";

let isLoading = false;

async function alone(load: () => Promise<void>): Promise<void> {
  if (isLoading) return;
  isLoading = true;
  await attempt(load);
  isLoading = false;
}

/** Loads the page before the first entry shown; one at a time. */
export const loadOlder = (): Promise<void> =>
  alone(async () => {
    const other = reading.peek();
    if (other !== null) return other.path.hasOlder ? loadOlderOf(other) : undefined;
    const shown = session.peek();
    const before = shown?.path.entries[0]?.id;
    if (!shown?.path.hasOlder || before === undefined) return undefined;
    const page = await api.readTranscript(shown.sessionId, { before, limit: PAGE });
    if (session.peek()?.sessionId === shown.sessionId) dispatch({ type: "older", before, page });
    return undefined;
  });

/** Loads the page after the last entry shown. */
export const loadNewer = (): Promise<void> =>
  alone(async () => {
    const other = reading.peek();
    if (other !== null) return other.path.hasNewer ? loadNewerOf(other) : undefined;
    const shown = session.peek();
    const after = shown?.path.entries.at(-1)?.id;
    if (!shown?.path.hasNewer || after === undefined) return undefined;
    try {
      const { leafId } = shown.path;
      const page = await api.readTranscript(shown.sessionId, { after, leaf: leafId, limit: PAGE });
      if (session.peek()?.sessionId === shown.sessionId) dispatch({ type: "newer", after, page });
    } catch (error) {
      if (!(error instanceof Problem && error.code === "entry_not_found")) throw error;
      await showNewest(); // the leaf was moved to where this does not lead
    }
    return undefined;
  });
