import { expect, test } from "vitest";
import { forkId, sessionName, shortId } from "./format";

const MADE = "01a22e7fab784d98c98929af63d18acc";

test("a session is called by an id that somebody chose, else by how it began", () => {
  expect(sessionName("release", "Why?")).toBe("release");
  expect(sessionName(MADE, "Why?")).toBe("Why?");
  expect(sessionName(MADE, null)).toBe("…d18acc");
  expect(sessionName("0b7c2a4e-1f7f-4c6c-9b43-8d7a3f1e2a55", "Why?")).toBe("Why?");
});

test("so are forks whose ids this page made, and forks of those", () => {
  const fork = forkId(MADE, "692c8411");
  expect(fork).toBe(`${MADE}-692c84`);
  expect(sessionName(fork, "Why?")).toBe("Why?");
  expect(forkId(fork, "abcdef11")).toBe(`${MADE}-abcdef`);
  expect(shortId(fork)).toBe("…692c84");
  expect(forkId("release", "abcdef11")).toBe("release-abcdef");
  // Forty characters, and none of them halved.
  expect(forkId("🦀".repeat(128), "abcdef11")).toBe(`${"🦀".repeat(40)}-abcdef`);
});

test("the session of a step is called by the step", () => {
  expect(sessionName(`${MADE}-build-it-74be37ad`, "a prompt")).toBe("build-it · …d18acc");
  expect(sessionName("r1-build-74be37ad", "a prompt")).toBe("r1-build-74be37ad");
});
