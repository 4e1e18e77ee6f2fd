import { settleBranch } from "../../state/conversation";
import { attempt } from "../../state/notice";
import { type Reading, reading } from "../../state/reading";
import { Icon } from "../part/Icon";

/** Says that another branch than the active one is shown, and how to make it the active one. */
export function ReadingBar({ shown, canSwitch }: { shown: Reading; canSwitch: boolean }) {
  return (
    <div class="reading-bar" data-testid="reading-bar">
      <Icon name="branch" />
      <p>This is another branch; the next message goes on from here.</p>
      <button type="button" class="quiet" data-testid="reading-back" onClick={() => (reading.value = null)}>
        Back
      </button>
      <button
        type="button"
        disabled={!canSwitch}
        data-testid="reading-settle"
        title={canSwitch ? undefined : "Not while a turn runs"}
        onClick={() => void attempt(() => settleBranch(shown.sessionId))}
      >
        Make it the active one
      </button>
    </div>
  );
}
