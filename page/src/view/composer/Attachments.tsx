import { toBase64 } from "../../net/whole";
import type { Part } from "../../net/wire";
import { showBytes } from "../../text/format";
import { visibleText } from "../../text/visible";
import { isShownImage, sizeOf } from "../part/FilePart";
import { Icon } from "../part/Icon";

/** The server takes a message of 32 MiB unless it was told otherwise; base64 takes a third of it. */
const MOST_BYTES = 22 * 1024 * 1024;

export interface ReadFiles {
  parts: readonly Part[];
  /** The names of those that are too long, or cannot be read. */
  leftOut: readonly string[];
}

/** Files as parts of a message, in order, as many as fit into one beside the ones before. */
export async function readFiles(list: Iterable<File>, before: readonly Part[]): Promise<ReadFiles> {
  const parts: Part[] = [];
  const leftOut: string[] = [];
  let total = before.reduce((sum, part) => sum + sizeOf(part), 0);
  // All at once: what was dropped is there for the length of its event.
  for (const file of [...list]) {
    const name = file.name || "file";
    if (total + file.size > MOST_BYTES) {
      leftOut.push(name);
      continue;
    }
    try {
      parts.push({ type: "file", media_type: mediaTypeOf(file), name, data: await toBase64(file) });
      total += file.size;
    } catch {
      leftOut.push(name); // a folder, or a file that is gone
    }
  }
  return { parts, leftOut };
}

export const leftOutWords = (names: readonly string[]): string =>
  `Not attached: ${names.join(", ")}. A message takes ${showBytes(MOST_BYTES)} of files; folders cannot be attached.`;

function mediaTypeOf(file: File): string {
  return /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? file.type : "application/octet-stream";
}

interface AttachmentsProps {
  files: readonly Part[];
  onRemove(file: Part): void;
}

/** What goes along with the message, each to be taken off again. */
export function Attachments({ files, onRemove }: AttachmentsProps) {
  if (files.length === 0) return null;
  return (
    <ul class="attachments" data-testid="attachments" aria-label="Attached files">
      {files.map((file, index) => (
        <li key={index}>
          {isShownImage(file) ? (
            <img src={`data:${file.media_type};base64,${file.data}`} alt="" />
          ) : (
            <Icon name="file" size={18} />
          )}
          <bdi>{visibleText(file.name ?? "file")}</bdi>
          <small>{showBytes(sizeOf(file))}</small>
          <button type="button" class="tiny" aria-label={`Take off ${file.name}`} onClick={() => onRemove(file)}>
            <Icon name="cross" size={12} />
          </button>
        </li>
      ))}
    </ul>
  );
}
