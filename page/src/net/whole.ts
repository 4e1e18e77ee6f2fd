/** Parts that were left out of a page for their length, fetched whole. */
import { readWhole } from "./api";
import type { Part } from "./wire";

/** The part with all that it has: as it is sent in a message. */
export async function wholePart(part: Part): Promise<Part> {
  if (part.elided !== true || part.href === undefined) return part;
  const { elided: _elided, bytes: _bytes, href, ...rest } = part;
  const blob = await readWhole(href);
  return part.type === "file" ? { ...rest, data: await toBase64(blob) } : { ...rest, text: await blob.text() };
}

/** Its bytes in base64. Rejects where they cannot be read. */
export function toBase64(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error("it cannot be read"));
    reader.readAsDataURL(blob);
  });
}
