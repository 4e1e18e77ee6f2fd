/**
 * Drafts: what was written and not yet accepted, kept in the browser under a name.
 *
 * A draft has a key from its first sending on. Sending it again, after a reload too, uses the same
 * key, so it is accepted once. Another text is another draft. Its files are in the browser's database,
 * for they do not fit where the text is.
 */
import type { Part } from "../net/wire";

export interface Draft {
  text: string;
  key: string | null;
}

export const NO_DRAFT: Draft = { text: "", key: null };

const nameOf = (name: string): string => `perdure.draft.${name}`;

export function loadDraft(name: string): Draft {
  try {
    const draft = JSON.parse(localStorage.getItem(nameOf(name)) ?? "null") as Draft | null;
    if (draft !== null && typeof draft.text === "string") return { text: draft.text, key: draft.key ?? null };
  } catch {
    // Storage is off, or holds something else: there is no draft.
  }
  return NO_DRAFT;
}

export function saveDraft(name: string, draft: Draft | null): void {
  try {
    if (draft === null || (draft.text === "" && draft.key === null)) localStorage.removeItem(nameOf(name));
    else localStorage.setItem(nameOf(name), JSON.stringify(draft));
  } catch {
    // Storage is off or full: the draft lives as long as the page.
  }
}

export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function inStore<T>(mode: IDBTransactionMode, use: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("perdure", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("files");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const database = opening.result;
      const request = use(database.transaction("files", mode).objectStore("files"));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
      request.transaction?.addEventListener("complete", () => database.close());
    };
  });
}

export async function loadFiles(name: string): Promise<readonly Part[]> {
  try {
    return (await inStore<readonly Part[] | undefined>("readonly", (store) => store.get(nameOf(name)))) ?? [];
  } catch {
    return []; // no database here: files live as long as the page
  }
}

export async function saveFiles(name: string, files: readonly Part[]): Promise<void> {
  try {
    if (files.length === 0) await inStore("readwrite", (store) => store.delete(nameOf(name)));
    else await inStore("readwrite", (store) => store.put(files, nameOf(name)));
  } catch {
    // As above.
  }
}
