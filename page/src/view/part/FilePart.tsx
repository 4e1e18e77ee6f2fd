import { readWhole } from "../../net/api";
import type { Part } from "../../net/wire";
import { attempt } from "../../state/notice";
import { showBytes } from "../../text/format";
import { saveBlob } from "../../export/save";
import { visibleText } from "../../text/visible";
import { Icon } from "./Icon";

const SHOWN_IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export const isShownImage = (part: Part): boolean => SHOWN_IMAGES.has(part.media_type ?? "");

/** What a file weighs, in bytes. */
export function sizeOf(part: Part): number {
  return part.elided ? (part.bytes ?? 0) : Math.floor(((part.data ?? "").replace(/=+$/, "").length * 3) / 4);
}

/** A file of a message: images that nothing can run in are shown, all others only offered. */
export function FilePart({ part }: { part: Part }) {
  const name = part.name ?? part.media_type ?? part.type;
  const has = part.elided ? part.href !== undefined : Boolean(part.data);
  if (has && isShownImage(part)) {
    const address = part.elided ? part.href : `data:${part.media_type};base64,${part.data}`;
    return (
      <a class="file image" href={part.elided ? part.href : undefined} target="_blank" rel="noopener">
        <img src={address} alt={visibleText(name)} loading="lazy" />
      </a>
    );
  }
  if (!has && part.url && /^https?:\/\//i.test(part.url)) {
    return (
      <a class="file" href={part.url} target="_blank" rel="noopener noreferrer nofollow">
        <Icon name="link" /> <bdi>{visibleText(name)}</bdi>
      </a>
    );
  }
  if (!has) return <span class="file">{visibleText(name)}</span>;
  return (
    <button type="button" class="file" title="Download" onClick={() => void attempt(() => download(part, name))}>
      <Icon name="file" /> <bdi>{visibleText(name)}</bdi> <small>{showBytes(sizeOf(part))}</small>
    </button>
  );
}

async function download(part: Part, name: string): Promise<void> {
  // As bytes and never as what they claim to be: a page of somebody else's must not open here.
  const bytes = part.elided ? await readWhole(part.href ?? "") : decode(part.data ?? "");
  saveBlob(new Blob([bytes], { type: "application/octet-stream" }), name);
}

function decode(data: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}
