import { expect, test } from "vitest";
import { decodePiece, OVERLAP } from "./piece";

test("pieces of any size, put together, are the text", () => {
  const text = "line 1 ✓ of é 🧭 the output\n".repeat(40);
  const bytes = new TextEncoder().encode(text);
  for (let size = 4; size < 90; size++) {
    let joined = "";
    for (let start = 0; start < bytes.length; start += size) {
      joined += decodePiece(bytes.subarray(start, start + size + OVERLAP), size, start === 0);
    }
    expect(joined).toBe(text);
  }
});
