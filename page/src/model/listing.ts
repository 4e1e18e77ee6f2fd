/** The list of sessions, newest activity first: a pure fold of listing pages and `status` events. */
import type { ListingPage, Look } from "../net/wire";

export interface Listing {
  sessions: readonly Look[];
  next: string | null;
  isLoaded: boolean;
}

export const emptyListing: Listing = { sessions: [], next: null, isLoaded: false };

/** The first page: its order counts; sessions known from pages after it stay behind it. */
export function takeFirstPage(listing: Listing, page: ListingPage): Listing {
  if (page.next === null) return { sessions: page.sessions, next: null, isLoaded: true };
  const first = new Set(page.sessions.map((look) => look.session_id));
  const behind = listing.sessions.filter((look) => !first.has(look.session_id));
  const hadMore = listing.isLoaded && listing.sessions.length > page.sessions.length;
  return {
    sessions: [...page.sessions, ...(hadMore ? behind : [])],
    next: hadMore ? listing.next : page.next,
    isLoaded: true,
  };
}

/** A page after the first. */
export function takeNextPage(listing: Listing, page: ListingPage): Listing {
  const known = new Set(listing.sessions.map((look) => look.session_id));
  const added = page.sessions.filter((look) => !known.has(look.session_id));
  return { ...listing, sessions: [...listing.sessions, ...added], next: page.next };
}

/** A status: a session that grew goes to the top, a deleted one goes. */
export function takeListingStatus(listing: Listing, look: Look): Listing {
  const index = listing.sessions.findIndex((other) => other.session_id === look.session_id);
  const old = listing.sessions[index];
  if (look.status === "deleted") {
    return old === undefined ? listing : { ...listing, sessions: listing.sessions.toSpliced(index, 1) };
  }
  const merged = { ...old, ...look };
  if (old !== undefined && (look.last_seq ?? 0) <= (old.last_seq ?? 0)) {
    return { ...listing, sessions: listing.sessions.with(index, merged) };
  }
  const others = listing.sessions.filter((other) => other.session_id !== look.session_id);
  return { ...listing, sessions: [merged, ...others] };
}
