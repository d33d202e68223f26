/**
 * Markdown as elements, from the tokens of marked's lexer. Safe by construction: elements are made by name and text is
 * set as text, no markup is ever parsed. HTML in the source is shown as it stands; links and pictures become their words
 * and address, because a model's output must not lead anywhere or fetch anything.
 *
 * Each piece of text keeps its place in the source, so that it can be tinted by where its tokens came from: `leaf(text,
 * start)` makes the nodes for `text`, which stands at `start`.
 */

import { make } from "./make.js";

/** Deeper nesting is shown as its source: no honest answer has it, and a hostile one would overflow the stack. */
const DEEPEST = 12;

const ENTITY = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };

export class Markdown {
  #source;
  #leaf;
  #highlight;
  #at = 0;

  /**
   * @param {{source: string, leaf: (text: string, start: number) => Node[],
   *   highlight: (fence: string) => ((code: string) => string) | null}} options
   */
  constructor({ source, leaf, highlight }) {
    this.#source = source;
    this.#leaf = leaf;
    this.#highlight = highlight;
  }

  /** One element, or null for what isn't seen, for each top-level token. */
  render(tokens) {
    return tokens.map((token) => {
      const start = this.#at;
      const element = this.#block(token, 0);
      this.#at = start + token.raw.length;
      return element;
    });
  }

  #blocks(tokens, depth) {
    return tokens.map((token) => this.#block(token, depth)).filter((element) => element !== null);
  }

  #block(token, depth) {
    if (depth > DEEPEST) return this.#element("p", this.#text(token.raw));
    switch (token.type) {
      case "space":
      case "def":
      case "checkbox": // the item shows it
        return null;
      case "heading":
        // The page's own headings go before: an answer's begin at h3.
        return this.#element(`h${Math.min(6, token.depth + 2)}`, this.#inline(token, depth));
      case "code":
        return this.#code(token);
      case "blockquote":
        return this.#element("blockquote", this.#blocks(token.tokens, depth + 1));
      case "list":
        return this.#list(token, depth);
      case "table":
        return this.#table(token, depth);
      case "hr":
        return make("hr");
      case "paragraph":
        return this.#element("p", this.#inline(token, depth));
      case "text":
        return this.#element("span", this.#inline(token, depth));
      default: // html among them
        return this.#element("p", this.#text(token.raw.replace(/\n+$/, "")));
    }
  }

  #list(token, depth) {
    const list = make(token.ordered ? "ol" : "ul", token.ordered && token.start !== 1 ? { start: token.start } : {});
    for (const item of token.items) {
      const element = this.#element("li", this.#blocks(item.tokens, depth + 1));
      if (item.task) element.prepend(item.checked ? "☑ " : "☐ ");
      list.append(element);
    }
    return list;
  }

  #table({ header, rows }, depth) {
    const row = (name, cells) =>
      this.#element(
        "tr",
        cells.map((cell) => this.#element(name, this.#inline(cell, depth))),
      );
    const head = this.#element("thead", [row("th", header)]);
    const body = this.#element(
      "tbody",
      rows.map((cells) => row("td", cells)),
    );
    const frame = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" });
    frame.append(this.#element("table", [head, body]));
    return frame;
  }

  #code({ text, lang }) {
    const code = make("code");
    const highlight = this.#highlight(lang ?? "");
    if (highlight === null || text === "") code.append(...this.#text(text));
    else for (const [part, name] of segments(highlight(text))) code.append(...this.#tinted(part, name));
    const block = make("pre", { tabindex: "0", role: "region", "aria-label": lang ? `Code, ${lang}` : "Code" });
    block.append(code);
    return block;
  }

  #tinted(part, name) {
    const nodes = this.#text(part);
    return name === "" ? nodes : [this.#element("span", nodes, { class: name })];
  }

  #inline(token, depth) {
    if (token.tokens === undefined) return this.#text(token.text ?? token.raw);
    return token.tokens.flatMap((inner) => this.#span(inner, depth + 1));
  }

  #span(token, depth) {
    if (depth > DEEPEST) return this.#text(token.raw);
    switch (token.type) {
      case "strong":
      case "em":
      case "del":
        return [this.#element(token.type, this.#inline(token, depth))];
      case "codespan":
        return [this.#element("code", this.#text(token.text))];
      case "br":
        return [make("br")];
      case "link":
      case "image":
        return this.#address(token, depth);
      case "html":
        return this.#text(token.raw);
      case "checkbox":
        return [];
      default:
        return this.#inline(token, depth);
    }
  }

  /** Words and address of a link, and no link; anything but a web address stays as the source has it. */
  #address(token, depth) {
    if (!/^https?:\/\//i.test(token.href)) return this.#text(token.raw);
    const words = token.type === "image" ? this.#text(token.text) : this.#inline(token, depth);
    if (token.text === token.href) return words;
    return [...words, make("span", { class: "address" }, ` (${token.href})`)];
  }

  /** The text's place: the next one behind the last text, where what lies between is only syntax. */
  #text(text) {
    const found = this.#source.indexOf(text, this.#at);
    const start = found < 0 ? this.#at : found;
    this.#at = start + text.length;
    return this.#leaf(text, start);
  }

  #element(name, children, attributes = {}) {
    const element = make(name, attributes);
    element.append(...children);
    return element;
  }
}

/** highlight.js's markup as [text, class] pairs; it knows no other markup than nested spans and five entities. */
export function segments(markup) {
  const parts = [];
  const names = [];
  for (const [piece] of markup.matchAll(/<span class="[^"]*">|<\/span>|[^<]+/g)) {
    if (piece === "</span>") names.pop();
    else if (piece.startsWith("<span")) names.push(piece.slice(13, -2));
    else parts.push([piece.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => ENTITY[entity]), names.at(-1) ?? ""]);
  }
  return parts;
}

/**
 * Make the children of `old` from the `from`-th on equal `fresh`, and keep every node that is the same: so what was
 * there doesn't flash, and what is new can land.
 */
export function reconcile(old, fresh, from = 0) {
  const before = [...old.childNodes].slice(from);
  const after = [...fresh];
  after.forEach((node, index) => {
    const there = before[index];
    if (there === undefined) old.append(node);
    else if (there.isEqualNode(node)) return;
    else if (there.nodeType === 1 && node.nodeType === 1 && alike(there, node)) reconcile(there, node.childNodes);
    else there.replaceWith(node);
  });
  for (const node of before.slice(after.length)) node.remove();
}

function alike(a, b) {
  return a.tagName === b.tagName && a.cloneNode(false).isEqualNode(b.cloneNode(false));
}
