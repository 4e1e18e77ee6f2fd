/** Another branch than the active one, read without making it active: looking changes nothing. */
import { signal } from "@preact/signals";
import { addNewer, addOlder, openMiddle, openPath, type Path } from "../model/path";
import * as api from "../net/api";
import type { Entry, TranscriptPage } from "../net/wire";
import { attempt } from "./notice";

export interface Reading {
  sessionId: string;
  path: Path;
}

export const reading = signal<Reading | null>(null);

const PAGE = 60;

/** Reads the newest branch through an entry, whose older side is given. */
export async function readBranch(sessionId: string, entryId: string, older: TranscriptPage): Promise<void> {
  const newer = await api.readTranscript(sessionId, { through: entryId, after: entryId, limit: PAGE });
  reading.value = { sessionId, path: openMiddle(older, newer) };
}

/**
 * Reads the branch through `siblingId`, which grows beside `entry` of `path`: what both have in
 * common stays where it is. Null where that is the active path.
 */
export async function readSibling(
  sessionId: string,
  path: Path,
  entry: Entry,
  siblingId: string,
  activeLeafId: string | null,
): Promise<void> {
  await attempt(async () => {
    const index = path.entries.findIndex(({ id }) => id === entry.id);
    const common = path.entries.slice(0, Math.max(index, 0));
    // What is hidden between them is on one of the two branches only.
    const after = common.at(-1)?.id ?? entry.parent_id ?? "";
    const newer = await api.readTranscript(sessionId, { through: siblingId, after, limit: PAGE });
    if (newer.leaf_id === activeLeafId) {
      reading.value = null;
      return;
    }
    const older = { entries: common, has_more: path.hasOlder, leaf_id: null };
    reading.value = { sessionId, path: { ...openMiddle(older, newer), leafId: newer.leaf_id } };
  });
}

export async function loadOlderOf(shown: Reading): Promise<void> {
  const before = shown.path.entries[0]?.id;
  if (before === undefined) return;
  const page = await api.readTranscript(shown.sessionId, { before, leaf: shown.path.leafId, limit: PAGE });
  if (reading.peek() === shown) reading.value = { ...shown, path: addOlder(shown.path, before, page) };
}

export async function loadNewerOf(shown: Reading): Promise<void> {
  const after = shown.path.entries.at(-1)?.id ?? "";
  const page = await api.readTranscript(shown.sessionId, { after, leaf: shown.path.leafId, limit: PAGE });
  if (reading.peek() === shown) reading.value = { ...shown, path: addNewer(shown.path, after, page) };
}

/** Goes back to the newest end of this branch. */
export async function showNewestOf(shown: Reading): Promise<void> {
  const page = await api.readTranscript(shown.sessionId, { leaf: shown.path.leafId, limit: PAGE });
  if (reading.peek() === shown) reading.value = { ...shown, path: openPath(page) };
}
