import { useEffect, useState } from "preact/hooks";
import { readPiece, readWhole } from "../../net/api";
import { attempt } from "../../state/notice";
import { showBytes } from "../../text/format";
import { decodePiece, OVERLAP } from "../../text/piece";
import { visibleCode } from "../../text/visible";
import { Copy } from "../part/Copy";
import { Icon } from "../part/Icon";

export const PIECE_BYTES = 128 * 1024;

interface ElidedProps {
  href: string;
  bytes: number | undefined;
  /** The name of the file that it is downloaded as. */
  name?: string;
}

/** A text too long for the page it came in: read piece by piece, and never more of it than one piece. */
export function Elided({ href, bytes, name = "output.txt" }: ElidedProps) {
  const [index, setIndex] = useState(0);
  const [shown, setShown] = useState<{ index: number; text: string } | null>(null);
  const [total, setTotal] = useState(bytes ?? 0);

  useEffect(() => {
    let isOver = false;
    void attempt(async () => {
      const piece = await readPiece(href, index * PIECE_BYTES, PIECE_BYTES + OVERLAP);
      if (isOver) return;
      setShown({ index, text: decodePiece(piece.bytes, PIECE_BYTES, index === 0) });
      setTotal(piece.total);
    });
    return () => {
      isOver = true;
    };
  }, [href, index]);

  const last = Math.max(Math.ceil(total / PIECE_BYTES) - 1, 0);
  const from = index * PIECE_BYTES;
  const to = Math.min(from + PIECE_BYTES, total);
  return (
    <div class="elided">
      <pre data-testid="elided" data-piece={shown?.index} aria-busy={shown?.index !== index} tabIndex={0} dir="ltr">
        {shown === null ? "Loading…" : visibleCode(shown.text)}
      </pre>
      <div class="pager">
        {last > 0 && (
          <>
            <button
              type="button"
              class="tiny"
              aria-label="The piece before"
              disabled={index === 0}
              data-testid="elided-before"
              onClick={() => setIndex(index - 1)}
            >
              <Icon name="left" size={14} />
            </button>
            <span data-testid="elided-place">
              {showBytes(from)} – {showBytes(to)} of {showBytes(total)}
            </span>
            <button
              type="button"
              class="tiny"
              aria-label="The next piece"
              disabled={index >= last}
              data-testid="elided-more"
              onClick={() => setIndex(index + 1)}
            >
              <Icon name="right" size={14} />
            </button>
            <button type="button" class="tiny" disabled={index >= last} data-testid="elided-end" onClick={() => setIndex(last)}>
              To the end
            </button>
          </>
        )}
        <span class="space" />
        <Copy label="Copy all of it" text={async () => (await readWhole(href)).text()} />
        <a class="tiny" href={href} download={name} title="Download all of it">
          <Icon name="download" size={14} />
          <span class="unseen">Download all of it</span>
        </a>
      </div>
    </div>
  );
}
