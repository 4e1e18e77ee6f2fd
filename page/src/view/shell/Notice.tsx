import { useEffect } from "preact/hooks";
import { dismissError, notice, openDialogs } from "../../state/notice";
import { route } from "../../state/route";
import { visibleText } from "../../text/visible";
import { Icon } from "../part/Icon";

const SHOWN_MS = 8_000;

/** What the page has to say; an error stays until it is read, or the person goes elsewhere. */
export function Notice() {
  const said = notice.value;
  const shown = said?.isError && openDialogs.value > 0 ? null : said;
  const { place, sessionId, view, rest } = route.value;
  useEffect(dismissError, [place, sessionId, view, rest]);
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
