import { visibleCode } from "../../text/visible";
import { Copy } from "../part/Copy";

/** Text of a tool as it is, every character of it to be seen, with its own copying. */
export function Code({ text, label = "Copy" }: { text: string; label?: string }) {
  return (
    <div class="code">
      <pre dir="ltr" tabIndex={0}>
        {visibleCode(text)}
      </pre>
      <Copy label={label} text={() => text} />
    </div>
  );
}
