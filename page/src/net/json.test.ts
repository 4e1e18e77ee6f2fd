import { expect, test } from "vitest";
import { parseJson, showJson } from "./json";

test("numbers keep their spelling", () => {
  const text = '{"id":12345678901234567890,"seq":7,"rate":1.50}';
  const value = parseJson<{ seq: number }>(text);
  expect(value.seq).toBe(7);
  expect(showJson(value)).toContain("12345678901234567890");
});

test("a string is shown as it is", () => {
  expect(showJson("not {json")).toBe("not {json");
});
