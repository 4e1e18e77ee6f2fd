import type { Part } from "../../net/wire";
import { showBytes } from "../../text/format";
import { visibleText } from "../../text/visible";
import { isShownImage, sizeOf } from "../part/FilePart";
import { Icon } from "../part/Icon";

/** The server takes a message of 32 MiB unless it was told otherwise; base64 takes a third of it. */
const MOST_BYTES = 22 * 1024 * 1024;

/** Files as parts of a message; refused where all of them are more than a message can be. */
export async function readFiles(list: Iterable<File>, before: readonly Part[]): Promise<Part[]> {
  const files = [...list];
  const total = files.reduce((sum, file) => sum + file.size, 0) + before.reduce((sum, part) => sum + sizeOf(part), 0);
  if (total > MOST_BYTES) {
    throw new Error(`These files are ${showBytes(total)} together; a message takes ${showBytes(MOST_BYTES)} of files.`);
  }
  return Promise.all(
    files.map(async (file) => ({
      type: "file",
      media_type: mediaTypeOf(file),
      name: file.name || "file",
      data: await toBase64(file),
    })),
  );
}

function mediaTypeOf(file: File): string {
  return /^[\w.+-]+\/[\w.+-]+$/.test(file.type) ? file.type : "application/octet-stream";
}

function toBase64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
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
