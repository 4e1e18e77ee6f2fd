import { expect, test } from "vitest";
import { emptyListing, takeFirstPage, takeListingStatus, takeNextPage } from "./listing";
import type { Look } from "../net/wire";

const look = (id: string, seq = 1, status: Look["status"] = "idle"): Look => ({ session_id: id, status, last_seq: seq });
const ids = (listing: { sessions: readonly Look[] }) => listing.sessions.map((each) => each.session_id);
const two = takeFirstPage(emptyListing, { sessions: [look("a"), look("b")], next: "n" });

test("a session that grew goes to the top", () => {
  expect(ids(takeListingStatus(two, look("b", 2, "running")))).toEqual(["b", "a"]);
});

test("a status without growth stays where it is", () => {
  const listing = takeListingStatus(two, look("b", 1, "interrupted"));
  expect([ids(listing), listing.sessions[1]?.status]).toEqual([["a", "b"], "interrupted"]);
});

test("a new session goes to the top, a deleted one goes", () => {
  expect(ids(takeListingStatus(two, look("c")))).toEqual(["c", "a", "b"]);
  expect(ids(takeListingStatus(two, look("a", 1, "deleted")))).toEqual(["b"]);
});

test("pages follow each other without doubles", () => {
  expect(ids(takeNextPage(two, { sessions: [look("b"), look("c")], next: null }))).toEqual(["a", "b", "c"]);
});

test("the first page, fetched again, brings its order and drops what is gone", () => {
  expect(ids(takeFirstPage(two, { sessions: [look("b")], next: null }))).toEqual(["b"]);
});
