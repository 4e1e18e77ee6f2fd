import { useMemo } from "preact/hooks";
import { createRenderer } from "../markdown";

const render = createRenderer(window);

export function Markdown({ source }: { source: string }) {
  const html = useMemo(() => render(source), [source]);
  return <div class="markdown" dangerouslySetInnerHTML={{ __html: html }} />;
}
