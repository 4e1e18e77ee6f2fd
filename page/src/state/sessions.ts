/** The sessions of the list: pages of the server's listing, kept true by `status` events. */
import { signal } from "@preact/signals";
import * as api from "../net/api";
import type { Look } from "../net/wire";
import { emptyListing, takeFirstPage, takeListingStatus, takeNextPage } from "../model/listing";
import { parseJson } from "../net/json";
import { listen } from "./feed";
import { attempt } from "./notice";
import { go, hrefOf } from "./route";

export const listing = signal(emptyListing);
export const filter = signal<api.Filter>({ match: "", status: "" });

/** What other parts do when a look at a session comes along. */
const watchers: ((look: Look) => void)[] = [];

export function onLook(watcher: (look: Look) => void): void {
  watchers.push(watcher);
}

const PAGE = 100;
const LISTING_FOLDS_MS = 60;
let asking = 0;
let loadingAfter: string | null = null;

export const isFiltered = (): boolean => filter.value.match !== "" || filter.value.status !== "";

/** Whether a session belongs in the list that is shown, as the server decides it. */
export function fits(look: Look, { match, status }: api.Filter): boolean {
  const words = `${look.session_id}\n${look.title ?? ""}`.toLowerCase();
  return (status === "" || look.status === status) && words.includes(match.toLowerCase());
}

export async function refreshListing(): Promise<void> {
  const mine = ++asking;
  await attempt(async () => {
    const page = await api.listSessions(null, filter.value, PAGE);
    if (mine !== asking) return;
    listing.value = isFiltered()
      ? { sessions: page.sessions, next: page.next, isLoaded: true }
      : takeFirstPage(listing.value, page);
    for (const look of page.sessions) for (const watcher of watchers) watcher(look);
  });
}

export function setFilter(changed: Partial<api.Filter>): void {
  filter.value = { ...filter.value, ...changed };
  listing.value = { ...emptyListing, sessions: listing.value.sessions.filter((look) => fits(look, filter.value)) };
  void refreshListing();
}

export async function loadMoreSessions(): Promise<void> {
  const { next } = listing.value;
  if (next === null || loadingAfter === next) return;
  loadingAfter = next;
  await attempt(async () => {
    const page = await api.listSessions(next, filter.value, PAGE);
    if (listing.value.next === next) listing.value = takeNextPage(listing.value, page);
  });
  loadingAfter = null;
}

/** Whether somebody is choosing what the next session is made with. */
export const isMaking = signal(false);

/** Makes a session and goes to it; whether that was possible. */
export function newSession(wanted?: api.WantedSession): Promise<boolean> {
  return attempt(async () => {
    const look = await api.createSession(wanted);
    if (isFiltered()) setFilter({ match: "", status: "" });
    listing.value = takeListingStatus(listing.value, look);
    go(hrefOf(look.session_id));
  });
}

listen({
  shown: () => null,
  drawingMs: () => (listing.value.sessions.length > 500 ? LISTING_FOLDS_MS : 0),
  onLive: () => void refreshListing(),
  onRefused: () => undefined,
  onEvents: (events) => {
    let list = listing.value;
    for (const { event, data } of events) {
      if (event !== "status") continue;
      const look = parseJson<Look>(data);
      if (look.status === "deleted" || fits(look, filter.value)) list = takeListingStatus(list, look);
      else if (isFiltered()) list = takeListingStatus(list, { ...look, status: "deleted" });
    }
    listing.value = list;
  },
});
