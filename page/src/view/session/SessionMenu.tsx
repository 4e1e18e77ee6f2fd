import { useState } from "preact/hooks";
import { compactSession } from "../../net/api";
import { settleBranch } from "../../state/conversation";
import { attempt, say } from "../../state/notice";
import { reading } from "../../state/reading";
import { copyText } from "../../text/clip";
import { ExportDialog } from "../export/ExportDialog";
import { Menu } from "../part/Menu";
import { DeleteDialog } from "./DeleteDialog";
import { forking } from "./ForkDialog";

/** What can be done with a session as a whole. */
export function SessionMenu({ id, status }: { id: string; status: string }) {
  const [open, setOpen] = useState<"delete" | "export" | null>(null);
  const close = (): void => setOpen(null);
  const isWell = status !== "unrecoverable";
  const isBusy = status === "running" || status === "waiting";
  const compact = (): void =>
    void attempt(async () => {
      say("Compacting: the model writes a summary…");
      await settleBranch(id);
      const { entry } = await compactSession(id);
      say(
        entry === null
          ? "There is nothing to compact yet."
          : "Compacted: earlier messages stay here, the model reads their summary.",
      );
    });
  return (
    <>
      <Menu
        label="Session menu"
        testId="session-menu"
        items={[
          {
            label: "Fork…",
            testId: "fork",
            isDisabled: !isWell,
            onChoose: () => (forking.value = { sessionId: id, entryId: null, leafId: shownLeaf(id) }),
          },
          {
            label: "Compact",
            testId: "compact",
            isDisabled: !isWell || isBusy,
            hint: isBusy ? "not while a turn runs" : "a summary for the model",
            onChoose: compact,
          },
          { label: "Export…", testId: "export", isDisabled: !isWell, onChoose: () => setOpen("export") },
          { label: "Copy the id", onChoose: () => void attempt(() => copyText(id)) },
          { label: "Delete…", testId: "delete", isDanger: true, onChoose: () => setOpen("delete") },
        ]}
      />
      {open === "delete" && <DeleteDialog id={id} onClose={close} />}
      {open === "export" && <ExportDialog id={id} onClose={close} />}
    </>
  );
}

/** The end of the branch that is read, where it is not the active one. */
function shownLeaf(sessionId: string): string | null {
  const other = reading.value;
  return other?.sessionId === sessionId ? other.path.leafId : null;
}
