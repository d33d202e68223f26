/**
 * The npm packages that the page can use and doesn't need: `make page` puts them into /vendor. Each loads when it is
 * first wanted; `null` means that this gateway doesn't have it, and then the page does without.
 */

import { make } from "./make.js";

const loaded = new Map();

/** Every `wanted` after the first gives the same promise. */
function once(name, load) {
  if (!loaded.has(name)) loaded.set(name, load());
  return loaded.get(name);
}

async function present(path) {
  return (await fetch(path, { method: "HEAD" })).ok;
}

/** Markdown's lexer: source → a tree of tokens. */
export function markdownLexer() {
  return once("marked", async () => {
    const path = "/vendor/marked/index.js";
    if (!(await present(path))) return null;
    const { lexer } = await import(path);
    return lexer;
  });
}

/** uPlot's class. It comes as a script, which a page of this policy may add only from itself. */
export function charts() {
  return once("uplot", async () => {
    const path = "/vendor/uplot/index.js";
    if (!(await present(path))) return null;
    document.head.append(make("link", { rel: "stylesheet", href: "/vendor/uplot/style.css" }));
    await new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement("script"), { src: path, onload: resolve, onerror: reject });
      document.head.append(script);
    });
    return globalThis.uPlot;
  });
}

const LANGUAGES = new Map(
  Object.entries({
    bash: ["bash", "sh", "shell", "console"],
    c: ["c", "h", "cpp", "c++"],
    css: ["css"],
    javascript: ["javascript", "js", "ts", "typescript", "jsx"],
    json: ["json"],
    python: ["python", "py"],
    rust: ["rust", "rs"],
    sql: ["sql"],
    xml: ["xml", "html", "svg"],
  }).flatMap(([language, names]) => names.map((name) => [name, language])),
);

/** A function from code to highlight.js's markup, for the word behind a fence; null if it is none that we know. */
export function highlighter(fence) {
  const language = LANGUAGES.get(fence.trim().toLowerCase().split(/\s/)[0]);
  if (language === undefined) return Promise.resolve(null);
  return once(`highlight ${language}`, async () => {
    const core = await once("highlight", async () =>
      (await present("/vendor/highlight/core.js")) ? (await import("/vendor/highlight/core.js")).default : null,
    );
    if (core === null) return null;
    core.registerLanguage(language, (await import(`/vendor/highlight/${language}.js`)).default);
    return (code) => core.highlight(code, { language, ignoreIllegals: true }).value;
  });
}
