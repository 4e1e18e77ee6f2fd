import { showJson } from "../../net/json";
import type { Part } from "../../net/wire";
import { FilePart } from "../part/FilePart";
import { Code } from "./Code";
import { Elided } from "./Elided";

/** What a tool gave: its texts and files, each whole or to be read piece by piece. */
export function ToolResult({ part }: { part: Part }) {
  const parts = part.parts ?? [];
  const name = `${part.name ?? "tool"}-output.txt`;
  if (part.elided && part.href && parts.length === 0) return <Elided href={part.href} bytes={part.bytes} name={name} />;
  if (parts.every((piece) => piece.type === "text" && !piece.text && !piece.elided)) return <p class="hint">Empty.</p>;
  return (
    <>
      {parts.map((piece, index) => (
        <ResultPart key={index} part={piece} name={name} />
      ))}
    </>
  );
}

function ResultPart({ part, name }: { part: Part; name: string }) {
  if (part.type === "file") return <FilePart part={part} />;
  if (part.elided && part.href) return <Elided href={part.href} bytes={part.bytes} name={name} />;
  if (part.type === "text") return part.text ? <Code text={part.text} label="Copy the output" /> : null;
  return <Code text={showJson(part)} />;
}
