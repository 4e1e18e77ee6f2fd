import { useEffect } from "preact/hooks";
import { notice } from "../../state/notice";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

const SHOWN_MS = 8_000;

/** What the page has to say; an error stays until it is read. */
export function Notice() {
  const shown = notice.value;
  useEffect(() => {
    if (shown === null || shown.isError) return undefined;
    const timer = setTimeout(() => {
      if (notice.value === shown) notice.value = null;
    }, SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  return (
    <div class="notices" role="status">
      {shown !== null && (
        <div class={shown.isError ? "notice error" : "notice"} data-testid="notice">
          <span>{visibleText(shown.text)}</span>
          <button type="button" class="tiny" aria-label="Close" onClick={() => (notice.value = null)}>
            <Icon name="cross" size={14} />
          </button>
        </div>
      )}
    </div>
  );
}
