/**
 * Where the page is, as its address says: the hash, which no server sees.
 *
 * `#/name` is a place of its own, `#/name/rest` a part of it; `#id` is a session, `#id/name/rest` one of its views. An id is
 * percent-encoded, so it never has a slash.
 */
import { computed, signal } from "@preact/signals";

export interface Route {
  place: string;
  sessionId: string | null;
  view: string;
  rest: string;
  /** What a place has behind that. */
  more: string;
}

const decode = (text: string | undefined): string => {
  try {
    return decodeURIComponent(text ?? "");
  } catch {
    return "";
  }
};

export function readRoute(hash: string): Route {
  const [first, view, ...rest] = hash.replace(/^#/, "").split("/");
  const sessionId = decode(first) || null;
  if (sessionId === null) {
    const [one, ...more] = rest;
    return { place: decode(view), sessionId, view: "", rest: decode(one), more: decode(more.join("/")) };
  }
  return { place: "", sessionId, view: decode(view), rest: decode(rest.join("/")), more: "" };
}

export const route = signal(readRoute(location.hash));
export const sessionId = computed(() => route.value.sessionId);

addEventListener("hashchange", () => {
  route.value = readRoute(location.hash);
});

export const hrefOf = (id: string, view = "", rest = ""): string =>
  `#${[id, view, rest].filter((part, index) => index === 0 || part !== "").map(encodeURIComponent).join("/")}`;

export const hrefOfEntry = (id: string, entryId: string): string => hrefOf(id, "entry", entryId);

export const hrefOfPlace = (name: string, rest = "", more = ""): string =>
  `#/${[name, rest, more].filter((part) => part !== "").map(encodeURIComponent).join("/")}`;

export function go(href: string): void {
  location.hash = href;
}
