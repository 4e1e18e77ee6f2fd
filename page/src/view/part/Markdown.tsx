import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { report } from "../../state/notice";
import { copyText } from "../../text/clip";
import { createRenderer, splitBlocks } from "../../text/markdown";

const render = createRenderer(window);

export const renderMarkdown = render;

/** Markdown of whoever wrote it; code can be copied. */
export function Markdown({ source }: { source: string }) {
  const html = useMemo(() => render(source), [source]);
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const code of host.current?.querySelectorAll("pre") ?? []) addCopy(code);
  }, [html]);
  return <div ref={host} class="markdown" dir="auto" dangerouslySetInnerHTML={{ __html: html }} />;
}

/** Markdown in the making: what stands is not drawn again. */
export function LiveMarkdown({ source }: { source: string }) {
  const blocks = useMemo(() => splitBlocks(source), [source]);
  return (
    <div class="markdown-blocks">
      {blocks.map((block, index) => (
        <Markdown key={index} source={block} />
      ))}
    </div>
  );
}

/** The button is the page's own and never of the text; it stands beside the code and not in it. */
function addCopy(code: HTMLPreElement): void {
  if (code.parentElement?.classList.contains("code")) return;
  const frame = document.createElement("div");
  frame.className = "code";
  code.replaceWith(frame);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "tiny";
  button.textContent = "Copy";
  button.dataset.testid = "copy-code";
  button.addEventListener("click", () => {
    copyText(code.textContent ?? "").then(() => {
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1_500);
    }, report);
  });
  code.tabIndex = 0;
  frame.append(code, button);
}
