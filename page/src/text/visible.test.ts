import { expect, test } from "vitest";
import { visibleCode, visibleText } from "./visible";

test("control characters become their pictures, and text stays what it is", () => {
  expect(visibleText("\x1b[31mred\x07\x7f\x85")).toBe("␛[31mred␇␡⟦U+0085⟧");
  const plain = "tab\t line\n return\r ü 🧭 مرحبا \u200f\u200e";
  expect(visibleText(plain)).toBe(plain);
});

test("overrides of direction are marks everywhere, isolates in code", () => {
  expect(visibleText("a\u202eb\u202c")).toBe("a⟦U+202E⟧b⟦U+202C⟧");
  expect(visibleText("\u2067x\u2069")).toBe("\u2067x\u2069");
  expect(visibleCode("\u2067x\u2069")).toBe("⟦U+2067⟧x⟦U+2069⟧");
});
