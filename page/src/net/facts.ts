/** What the journal has between two entries. */
import { readEntries } from "./api";
import type { Entry } from "./wire";

const PAGE = 100;
/** How far after the first it is read; the journal has the rest in any case. */
const MOST_PAGES = 5;

/** The entries after `after` and before `before`, as far as they are near. */
export async function readBetween(sessionId: string, after: number, before: number): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  for (let page = 0; page < MOST_PAGES; page++) {
    const { entries, has_more } = await readEntries(sessionId, { after, limit: PAGE });
    found.push(...entries.filter(({ seq }) => seq < before));
    after = entries.at(-1)?.seq ?? after;
    if (!has_more || after >= before) break;
  }
  return found;
}
