import { useEffect, useRef, useState } from "preact/hooks";
import { readPiece } from "../api";
import { showBytes } from "../format";
import { attempt } from "../store";

const PIECE = 256 * 1024;

/** A part too long for the page it came in: fetched in pieces, the first one when it is shown. */
export function Elided({ href, bytes }: { href: string; bytes: number | undefined }) {
  const [pieces, setPieces] = useState<readonly string[]>([]);
  const [loaded, setLoaded] = useState(0);
  const [total, setTotal] = useState(bytes ?? null);
  const [isLoading, setLoading] = useState(false);
  const decoder = useRef(new TextDecoder());

  const load = async (): Promise<void> => {
    setLoading(true);
    await attempt(async () => {
      const piece = await readPiece(href, loaded, PIECE);
      const isLast = loaded + piece.bytes.length >= piece.total;
      // Decoded as one stream, so that no character is cut between two pieces.
      const text = decoder.current.decode(piece.bytes, { stream: !isLast });
      setPieces([...pieces, text]);
      setLoaded(loaded + piece.bytes.length);
      setTotal(piece.total);
    });
    setLoading(false);
  };
  useEffect(() => void load(), []);

  const isWhole = total !== null && loaded >= total;
  return (
    <>
      <pre data-testid="elided">
        {pieces.map((piece, index) => (
          <span key={index}>{piece}</span>
        ))}
      </pre>
      {!isWhole && (
        <button type="button" class="quiet" data-testid="elided-more" disabled={isLoading} onClick={() => void load()}>
          {isLoading ? "Loading…" : `Show more (${showBytes(loaded)} of ${showBytes(total ?? 0)})`}
        </button>
      )}
    </>
  );
}
