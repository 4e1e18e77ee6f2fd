/**
 * Markdown to HTML that is safe to show, whoever wrote it.
 *
 * HTML in the text is shown as text. Images become links, so that nothing is fetched by being looked
 * at. What is left goes through an allow-list of elements, attributes and link schemes.
 */
import createDOMPurify, { type WindowLike } from "dompurify";
import { Marked } from "marked";
import { escapeHtml, highlight } from "./highlight";
import { visibleCode, visibleText } from "./visible";

const TAGS = [
  ..."p br hr strong em del code pre span a ul ol li blockquote".split(" "),
  ..."h1 h2 h3 h4 h5 h6 table thead tbody tr th td".split(" "),
];
const LINK = /^(?:https?:\/\/|mailto:)/i;
const CLASS = /^(?:hljs(?:-[\w-]+)?|language-[\w+#-]+|[\w-]+_)$/;

interface Leveled {
  level?: number;
}

/** As it is in TeX; of bounded length, for what has no end is looked at from every beginning. */
const FORMULA = /^(?:\$\$[^]{1,2000}?\$\$|\\\[[^]{1,2000}?\\\]|\\\([^]{1,2000}?\\\))/;

const marked = new Marked({
  gfm: true,
  breaks: true,
  extensions: [
    {
      // Its backslashes, stars and underscores are no markdown: it is shown as it was written.
      name: "formula",
      level: "inline",
      start: (source) => source.search(/\$\$|\\[[(]/),
      tokenizer(source) {
        const raw = FORMULA.exec(source)?.[0];
        return raw === undefined ? undefined : { type: "formula", raw };
      },
      renderer: ({ raw }) => `<code>${escapeHtml(visibleCode(raw))}</code>`,
    },
  ],
  renderer: {
    html: ({ text }) => escapeHtml(text),
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
    codespan: ({ text }) => `<code>${escapeHtml(visibleCode(text))}</code>`,
    heading({ tokens, depth, ...token }) {
      const level = (token as Leveled).level ?? Math.min(depth + 1, 6);
      return `<h${level} class="depth${depth}_">${this.parser.parseInline(tokens)}</h${level}>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    code: ({ text, lang }) => {
      const language = /^[\w+#-]*/.exec(lang ?? "")?.[0] ?? "";
      const name = language === "" ? "" : ` class="language-${language}"`;
      return `<pre><code${name}>${highlight(visibleCode(text), language)}</code></pre>`;
    },
  },
});

/**
 * The blocks of a text in the making, each with its own source: only the last ones can still change,
 * so that what was drawn stays.
 */
export function splitBlocks(source: string): string[] {
  const blocks: string[] = [];
  for (const { type, raw } of marked.lexer(source)) {
    if (type === "space" && blocks.length > 0) blocks[blocks.length - 1] += raw;
    else blocks.push(raw);
  }
  return blocks;
}

/**
 * HTML of a text. Its headings stand below the page's own one and leave out no level, whatever levels
 * they were written with; they look as they were written.
 */
function toHtml(source: string): string {
  const tokens = marked.lexer(source);
  let before = 1;
  marked.walkTokens(tokens, (token) => {
    if (token.type !== "heading") return;
    before = Math.min(token.depth + 1, before + 1, 6);
    (token as Leveled).level = before;
  });
  return marked.parser(tokens);
}

/** The renderer of one window's DOM. */
export function createRenderer(window: WindowLike): (source: string) => string {
  const purify = createDOMPurify(window);
  purify.addHook("uponSanitizeAttribute", (_node, data) => {
    if (data.attrName === "class" && !data.attrValue.split(/\s+/).every((name) => CLASS.test(name))) {
      data.keepAttr = false;
    }
  });
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.nodeName !== "A") return;
    const href = node.getAttribute("href");
    if (href !== null && !URL.canParse(href)) node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  });
  return (source) =>
    purify.sanitize(toHtml(visibleText(source)), {
      ALLOWED_TAGS: TAGS,
      ALLOWED_ATTR: ["href", "title", "class", "align", "start"],
      ALLOWED_URI_REGEXP: LINK,
      ADD_URI_SAFE_ATTR: ["align", "start"],
      ALLOW_DATA_ATTR: false,
      ALLOW_ARIA_ATTR: false,
    });
}
