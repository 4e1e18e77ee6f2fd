/** What the page tells the person: one notice at a time, and whether they are signed in. */
import { signal } from "@preact/signals";
import { Problem } from "../net/problem";

export interface Notice {
  text: string;
  isError: boolean;
}

export const notice = signal<Notice | null>(null);

/** How many dialogs are open: what goes wrong meanwhile is said in them, for nothing else can be read. */
export const openDialogs = signal(0);

/** The server does not know this browser, or no longer. */
export const isSignedOut = signal(false);

export function say(text: string, isError = false): void {
  notice.value = { text, isError };
}

/** An error is of the place that it happened in, and of what was tried there. */
export function dismissError(): void {
  if (notice.peek()?.isError) notice.value = null;
}

export function report(error: unknown): void {
  if (error instanceof Problem && error.status === 401) isSignedOut.value = true;
  else say(error instanceof Error ? error.message : String(error), true);
}

/** Runs a verb for the person; what goes wrong is said, and false returned. */
export async function attempt(verb: () => Promise<unknown>): Promise<boolean> {
  try {
    await verb();
    return true;
  } catch (error) {
    report(error);
    return false;
  }
}
