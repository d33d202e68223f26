/**
 * An answer's text as it grows: each token keeps its origin while markdown is laid out around it.
 *
 *     shown     0             settled                 end
 *               │ blocks done   │ parsed again each time │ pending draft
 *
 * Only the last blocks are parsed again, so a long answer costs no more than a short one.
 */

import { Markdown, reconcile } from "./markdown.js";
import { make } from "./make.js";

/** Blocks at the end that what comes next may still change: a list goes on, a line below makes a heading. */
const UNSETTLED = 2;
/** Characters. An unfinished part beyond the first is laid out as it stands; text beyond the second is not shown. */
const MOST_PARSED = 20_000;
export const MOST_SHOWN = 100_000;
const BLOCKS = new Set(["P", "LI", "UL", "OL", "BLOCKQUOTE", "PRE", "H3", "H4", "H5", "H6"]);

export class Manuscript {
  #container;
  #pending;
  #lexer;
  #highlight;
  #runs = [];
  #shown = "";
  #settled = 0;
  #settledNodes = 0;

  /**
   * @param {{container: HTMLElement, pending: HTMLElement, highlight: (fence: string) => Function | null}} options
   *   `pending` is kept behind the last word
   */
  constructor({ container, pending, highlight }) {
    this.#container = container;
    this.#pending = pending;
    this.#highlight = highlight;
    this.#lexer = null;
  }

  /** Text is laid out as it stands until there is a lexer. */
  set lexer(lexer) {
    this.#lexer = lexer;
    this.again();
  }

  /** All that could be shown, as it will be shown. */
  get shown() {
    return this.#shown;
  }

  append(text, origin) {
    const room = text.slice(0, MOST_SHOWN - this.#shown.length);
    if (room === "") return;
    this.#shown += room;
    this.#runs.push({ end: this.#shown.length, origin });
  }

  /** Keep the first `length` characters. */
  cut(length) {
    this.#shown = this.#shown.slice(0, length);
    const last = this.#runs.findIndex(({ end }) => end >= length);
    if (last >= 0) this.#runs.splice(last, Infinity, { ...this.#runs[last], end: length });
    this.again();
  }

  /** Lay out everything anew next time: something that settled blocks depend on has come. */
  again() {
    this.#settled = 0;
    this.#settledNodes = 0;
  }

  render() {
    this.#pending.remove();
    const source = this.#shown.slice(this.#settled);
    const tokens = source.length <= MOST_PARSED ? this.#parse(source) : [plain(source)];
    const leaf = (text, start) => this.#leaf(text, this.#settled + start);
    const elements = new Markdown({ source, leaf, highlight: this.#highlight }).render(tokens);
    reconcile(
      this.#container,
      elements.filter((element) => element !== null),
      this.#settledNodes,
    );
    for (let i = 0; i < tokens.length - UNSETTLED - 1; i++) {
      this.#settled += tokens[i].raw.length;
      if (elements[i] !== null) this.#settledNodes += 1;
    }
    lastBlock(this.#container).append(this.#pending);
  }

  /** marked recurses: output that nests thousands deep overflows its stack, and is then shown as it stands. */
  #parse(source) {
    if (this.#lexer === null) return [plain(source)];
    try {
      return this.#lexer(source);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#lexer = null;
      return [plain(source)];
    }
  }

  /** The space before a word stays untinted: a tint would hang over the end of a line. */
  #leaf(text, start) {
    const nodes = [];
    let at = start;
    const end = start + text.length;
    for (let i = this.#runAt(start); at < end && i < this.#runs.length; i++) {
      const part = text.slice(at - start, Math.min(end, this.#runs[i].end) - start);
      const word = part.trimStart();
      if (word.length < part.length) nodes.push(part.slice(0, part.length - word.length));
      if (word !== "") nodes.push(make("span", { "data-origin": this.#runs[i].origin }, word));
      at += part.length;
    }
    if (at < end) nodes.push(text.slice(at - start));
    return nodes;
  }

  /** Index of the run that holds a place. */
  #runAt(place) {
    let [low, high] = [0, this.#runs.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#runs[middle].end <= place) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function plain(source) {
  return { type: "plain", raw: source };
}

function lastBlock(container) {
  let block = container;
  for (;;) {
    const last = block.lastElementChild;
    if (last === null) return block;
    if (last.tagName === "CODE" && block.tagName === "PRE") return last;
    if (!BLOCKS.has(last.tagName)) return block;
    block = last;
  }
}
