/**
 * Copies the parts of the npm packages that the page loads from node_modules to static/vendor. `npm run vendor` after
 * `npm ci`; the page works without them, as plain text and with n-gram drafts.
 */

import { cpSync, mkdirSync, rmSync } from "node:fs";

const LANGUAGES = ["bash", "c", "css", "javascript", "json", "python", "rust", "sql", "xml"];
const FILES = {
  "@wllama/wllama/esm/index.min.js": "wllama/index.js",
  "@wllama/wllama/esm/single-thread/wllama.wasm": "wllama/single-thread.wasm",
  "@wllama/wllama/esm/multi-thread/wllama.wasm": "wllama/multi-thread.wasm",
  "@wllama/wllama/LICENCE": "wllama/LICENCE",
  "@mlc-ai/web-llm/lib/index.js": "webllm/index.js",
  "@mlc-ai/web-llm/LICENSE": "webllm/LICENSE",
  "marked/lib/marked.esm.js": "marked/index.js",
  "marked/LICENSE": "marked/LICENSE",
  "uplot/dist/uPlot.iife.min.js": "uplot/index.js",
  "uplot/dist/uPlot.min.css": "uplot/style.css",
  "uplot/LICENSE": "uplot/LICENSE",
  "@highlightjs/cdn-assets/es/core.min.js": "highlight/core.js",
  "@highlightjs/cdn-assets/LICENSE": "highlight/LICENSE",
  ...Object.fromEntries(
    LANGUAGES.map((name) => [`@highlightjs/cdn-assets/es/languages/${name}.min.js`, `highlight/${name}.js`]),
  ),
};

const from = new URL("../node_modules/", import.meta.url);
const to = new URL("./vendor/", import.meta.url);
rmSync(to, { recursive: true, force: true });
mkdirSync(to);
for (const [source, target] of Object.entries(FILES)) cpSync(new URL(source, from), new URL(target, to));
