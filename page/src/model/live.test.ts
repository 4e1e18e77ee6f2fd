import { expect, test } from "vitest";
import { type LiveMessage, placeDelta } from "./live";

const delta = (offset: number, text: string, part = 0) => ({ session_id: "s", message_id: "m", part, offset, text });
const place = (...deltas: ReturnType<typeof delta>[]): readonly LiveMessage[] =>
  deltas.reduce<readonly LiveMessage[]>(placeDelta, []);
const text = (messages: readonly LiveMessage[], part = 0) => messages[0]?.parts[part]?.text;

test("deltas of one part make its text", () => {
  expect(text(place(delta(0, "Hel"), delta(3, "lo")))).toBe("Hello");
});

test("a delta that comes twice adds nothing", () => {
  const once = place(delta(0, "Hel"));
  expect(placeDelta(once, delta(0, "Hel"))).toBe(once);
  expect(text(place(delta(0, "Hello"), delta(3, "lo there")))).toBe("Hello there");
});

test("a delta that comes before the partial text waits for it", () => {
  expect(text(place(delta(5, " there")))).toBe("");
  expect(text(place(delta(5, " there"), delta(11, "!"), delta(0, "Hello")))).toBe("Hello there!");
});

test("offsets count code points, not code units", () => {
  expect(text(place(delta(0, "a😀"), delta(2, "b"), delta(1, "😀bc")))).toBe("a😀bc");
});

test("parts do not mix", () => {
  const messages = place(delta(0, "one", 1), delta(0, "zero", 0));
  expect([text(messages, 0), text(messages, 1)]).toEqual(["zero", "one"]);
});
