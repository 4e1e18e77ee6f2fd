/**
 * Drafts: what was typed and not yet accepted, per session, kept in the browser.
 *
 * A draft has a key from its first sending on. Sending it again, after a reload too, uses the same
 * key, so it is accepted once. Another text is another draft.
 */
export interface Draft {
  text: string;
  key: string | null;
}

const name = (sessionId: string): string => `perdure.draft.${sessionId}`;

export function loadDraft(sessionId: string): Draft {
  try {
    const draft = JSON.parse(localStorage.getItem(name(sessionId)) ?? "null") as Draft | null;
    if (draft !== null && typeof draft.text === "string") return draft;
  } catch {
    // Storage is off, or holds something else: there is no draft.
  }
  return { text: "", key: null };
}

export function saveDraft(sessionId: string, draft: Draft): void {
  try {
    if (draft.text === "") localStorage.removeItem(name(sessionId));
    else localStorage.setItem(name(sessionId), JSON.stringify(draft));
  } catch {
    // Storage is off or full: the draft lives as long as the page.
  }
}

export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
