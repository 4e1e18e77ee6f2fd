// @vitest-environment jsdom
import { expect, test } from "vitest";
import { createRenderer } from "./markdown";

const render = createRenderer(window);

function dom(source: string): HTMLElement {
  const host = document.createElement("div");
  host.innerHTML = render(source);
  return host;
}

const hostile = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "![x](https://evil.example/pixel.png)",
  "![x](javascript:alert(1))",
  '![x"onerror="alert(1)](x)',
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt&#58;alert(1))",
  "[x](java\tscript:alert(1))",
  "[x](data:text/html;base64,PHNjcmlwdD4=)",
  "[x](vbscript:x)",
  "[x](//evil.example)",
  "[x](#other-session)",
  "<javascript:alert(1)>",
  "<a href='javascript:alert(1)'>x</a>",
  "<svg><script>alert(1)</script></svg>",
  "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
  "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
  "<style>*{display:none}</style><form action=/v1/sessions><input name=x><button>go</button></form>",
  "```html\n<script>alert(1)</script><img src=x onerror=alert(1)>\n```",
  '```"><img/src=x/onerror=alert(1)>\nx\n```',
  "`<img src=x onerror=alert(1)>`",
  "- [x] <input autofocus onfocus=alert(1)>",
  "[a]: javascript:alert(1)\n\n[a]",
  '[x](https://a.example "title\\" onclick=\\"alert(1)")',
];

test.each(hostile)("nothing runs and nothing is fetched: %s", (source) => {
  const elements = [...dom(source).querySelectorAll("*")];
  for (const element of elements) {
    expect(["script", "img", "svg", "math", "iframe", "style", "form", "input", "button", "object"]).not.toContain(
      element.localName,
    );
    for (const { name, value } of element.attributes) {
      expect(["href", "title", "class", "align", "start", "target", "rel"]).toContain(name);
      if (name === "href") expect(value).toMatch(/^(https?:\/\/|mailto:)/);
    }
  }
});

test("HTML in the text is shown as text", () => {
  expect(dom("a <b>bold</b> <script>x</script>").textContent).toContain("a <b>bold</b> <script>x</script>");
});

test("links open elsewhere and tell nothing", () => {
  const link = dom("[x](https://a.example/?q=1)").querySelector("a");
  expect([link?.href, link?.target, link?.rel]).toEqual([
    "https://a.example/?q=1",
    "_blank",
    "noopener noreferrer nofollow",
  ]);
});

test("code is coloured where its language is known, and whole everywhere", () => {
  const known = dom("```python\ndef f():\n    return '<a>'\n```");
  expect(known.querySelector("code.language-python .hljs-keyword")?.textContent).toBe("def");
  expect(known.querySelector("code")?.textContent).toBe("def f():\n    return '<a>'");
  expect(dom("```nosuch\n<x> & y\n```").querySelector("code")?.textContent).toBe("<x> & y");
});

test("tables, lists, task lists and strikethrough are there", () => {
  const host = dom("| a | b |\n|--:|---|\n| 1 | ~~2~~ |\n\n3. x\n4. y\n\n- [x] done");
  expect(host.querySelector("th")?.getAttribute("align")).toBe("right");
  expect(host.querySelector("ol")?.getAttribute("start")).toBe("3");
  expect(host.querySelector("del")?.textContent).toBe("2");
  expect(host.textContent).toContain("☑ done");
});

test("a formula is shown as it was written", () => {
  const formulas = ["\\(a_1 * b_2 * \\{c\\}\\)", "\\[\n\\frac{1}{2} \\\\ x\n\\]", "$$a * b\\,c * d$$"];
  const shown = dom(`So ${formulas.join(" and ")}, for $5 and $6.`);
  expect([...shown.querySelectorAll("code")].map((code) => code.textContent)).toEqual(formulas);
  expect(shown.textContent).toContain("for $5 and $6.");
  expect(shown.querySelector("em")).toBe(null);
});

test("a formula without an end, and brackets that are escaped, are text", () => {
  expect(dom("an \\[escaped\\( bracket and $$ two").textContent?.trim()).toBe("an [escaped( bracket and $$ two");
  const start = performance.now();
  dom("\\(".repeat(30_000));
  expect(performance.now() - start).toBeLessThan(20_000);
});
