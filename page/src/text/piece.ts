/** Pieces of a long text: bytes from anywhere in UTF-8, shown without half a character. Pure. */

/** Bytes of a piece that are asked for beyond its end, so that its last character is whole. */
export const OVERLAP = 3;

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/**
 * The text of `bytes`, of which `size` make the piece and up to `OVERLAP` more may follow. A character
 * belongs to the piece that it begins in.
 */
export function decodePiece(bytes: Uint8Array, size: number, isFirst: boolean): string {
  let start = 0;
  if (!isFirst) while (start < OVERLAP && isContinuation(bytes[start])) start++;
  let end = Math.min(size, bytes.length);
  while (end < bytes.length && end < size + OVERLAP && isContinuation(bytes[end])) end++;
  return new TextDecoder().decode(bytes.subarray(start, end));
}
