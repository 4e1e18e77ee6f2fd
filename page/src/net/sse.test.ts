import { expect, test } from "vitest";
import { SseParser } from "./sse";

const stream =
  ": hello\n\nid: 1.a\nevent: entry\ndata: {\"a\":1}\n\ndata: one\r\ndata:two\r\n\r\nevent: void\rdata: x\r\revent: cut\ndata: never";
const events = [
  { event: "entry", data: '{"a":1}', id: "1.a" },
  { event: "message", data: "one\ntwo", id: null },
  { event: "void", data: "x", id: null },
];

test("a stream gives the same events however it is cut", () => {
  expect(new SseParser().push(stream)).toEqual(events);
  for (let size = 1; size < 12; size++) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...parser.push(stream.slice(at, at + size)));
    expect(found).toEqual(events);
  }
});

test("a line feed that follows a carriage return of the piece before is one line end", () => {
  const parser = new SseParser();
  expect([...parser.push("data: a\r"), ...parser.push("\n"), ...parser.push("\n")]).toEqual([
    { event: "message", data: "a", id: null },
  ]);
});

test("an event without data, and a block without a blank line after it, give nothing", () => {
  expect(new SseParser().push("event: entry\n\ndata: half\n")).toEqual([]);
});
