import { useState } from "preact/hooks";
import { exportUrl } from "../../net/api";
import { saveBlob, safeName } from "../../export/save";
import { attempt } from "../../state/notice";
import { reading } from "../../state/reading";
import { session } from "../../state/session";
import { plural, sessionName } from "../../text/format";
import { Dialog } from "../part/Dialog";
import { renderMarkdown } from "../part/Markdown";

type Format = "md" | "html";

/** A session as a file: for machines, for documents, for people. */
export function ExportDialog({ id, onClose }: { id: string; onClose(): void }) {
  const [done, setDone] = useState<number | null>(null);
  const state = session.value;
  const title = sessionName(id, state?.title, state?.createdAt);

  const make = (format: Format): void => {
    setDone(0);
    void attempt(async () => {
      const [{ readConversation }, { toMarkdown }, { toHtml }] = await Promise.all([
        import("../../export/read"),
        import("../../export/markdown"),
        import("../../export/html"),
      ]);
      const leaf = reading.value?.path.leafId ?? null;
      const conversation = await readConversation(id, title, leaf, setDone);
      const text = format === "md" ? toMarkdown(conversation) : toHtml(conversation, renderMarkdown);
      const type = format === "md" ? "text/markdown" : "text/html";
      saveBlob(new Blob([text], { type: `${type};charset=utf-8` }), `${safeName(id)}.${format}`);
      onClose();
    }).then(() => setDone(null));
  };

  const isBusy = done !== null;
  return (
    <Dialog title="Export this session" onClose={onClose} class="export-dialog" testId="export-dialog">
      <ul class="formats">
        <li>
          <a class="format" href={exportUrl(id).href} download={`${safeName(id)}.jsonl`} data-testid="export-jsonl" onClick={() => setTimeout(onClose)}>
            <b>JSON lines</b>
            <span>Everything, byte for byte, all branches; perdure import takes it</span>
          </a>
        </li>
        <li>
          <button type="button" class="format" disabled={isBusy} data-testid="export-html" onClick={() => make("html")}>
            <b>One HTML file</b>
            <span>The conversation as it reads here; opens anywhere, runs nothing</span>
          </button>
        </li>
        <li>
          <button type="button" class="format" disabled={isBusy} data-testid="export-md" onClick={() => make("md")}>
            <b>Markdown</b>
            <span>The conversation as text, for a document</span>
          </button>
        </li>
      </ul>
      {isBusy && (
        <p class="hint" role="status">
          Reading… {plural(done, "entry", "entries")}
        </p>
      )}
    </Dialog>
  );
}
