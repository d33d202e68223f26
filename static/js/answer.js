/**
 * One answer on the page: committed tokens tinted by origin, pending drafts dim behind the head, drafts that were
 * rolled back lifting off from where they stood. It is the `view` of runtime.js, and knows nothing of the protocol.
 */

import { highlighter, markdownLexer } from "./libraries.js";
import { make } from "./make.js";
import { Manuscript, MOST_SHOWN } from "./manuscript.js";
import { keepBytes, sentences, visible } from "./text.js";

/** More would only be clutter: a ghost is gone in a second. */
const GHOST_TOKENS = 4;
/** More than this at once is nothing that anybody would listen to. */
const MOST_SPOKEN = 2000;
/** Stands for a draft whose text this tab hasn't seen yet. */
const UNKNOWN = "·";

export class AnswerView {
  #text;
  #pending;
  #note;
  #ghosts;
  #announce;
  /** Characters of the content that screen readers were given. */
  #spoken = 0;
  #content = "";
  /** All pieces, for another life of the page: [text, origin]. */
  runs = [];
  #onEnded;
  #manuscript;
  #frame = null;
  #highlighters = new Map();

  /**
   * @param {{title: string, detail: string, announce: (text: string) => void,
   *   onEnded: (view: AnswerView, outcome: object) => void}} options
   */
  constructor({ title, detail, announce, onEnded }) {
    this.#announce = announce;
    this.#onEnded = onEnded;
    this.element = make("article", { class: "answer", "aria-busy": "true", "aria-label": "Answer" });
    const how = make("p", { class: "how" });
    how.append(make("strong", {}, title), make("span", {}, detail));
    this.#text = make("div", { class: "text", dir: "auto" });
    this.#pending = make("span", { class: "pending", "aria-hidden": "true" });
    this.#text.append(this.#pending);
    this.#manuscript = new Manuscript({
      container: this.#text,
      pending: this.#pending,
      highlight: (fence) => this.#highlighter(fence),
    });
    markdownLexer().then((lexer) => {
      this.#manuscript.lexer = lexer;
      this.#render();
    });
    this.#note = make("p", { class: "note", role: "status", hidden: "" });
    this.#ghosts = make("div", { class: "ghosts", "aria-hidden": "true" });
    const page = make("div", { class: "page" });
    page.append(this.#text, this.#ghosts);
    this.element.append(how, page, this.#note);
  }

  /** All the text so far. */
  get content() {
    return this.#content;
  }

  /** @param {{text: string, origin: string}[]} pieces @param {{agreed: number, rolledBack: (string|null)[]}} change */
  committed(pieces, { agreed = 0, rolledBack = [] } = {}) {
    this.#pending.textContent = "";
    pieces.forEach(({ text, origin }, index) => {
      if (index === agreed && rolledBack.length > 0) this.#lift(rolledBack);
      this.#content += text;
      this.runs.push([text, origin]);
      this.#manuscript.append(shown(text), origin);
    });
    this.#frame ??= requestAnimationFrame(() => this.#render());
    this.#speak(false);
  }

  /** What is drafted and not yet committed: all of it, replacing what stood there. */
  pending(texts) {
    this.#pending.textContent = texts.map((text) => (text === null ? UNKNOWN : visible(text))).join("");
  }

  away() {
    this.#say("The connection was lost; the answer goes on when it is back.");
    this.element.dataset.away = "";
  }

  back() {
    this.#say("");
    delete this.element.dataset.away;
  }

  /** @param {{reason: string, keptBytes?: number | null, message?: string}} outcome */
  ended(outcome) {
    this.#pending.textContent = "";
    if (outcome.keptBytes !== undefined && outcome.keptBytes !== null) this.#cut(outcome.keptBytes);
    this.#render();
    this.element.setAttribute("aria-busy", "false");
    delete this.element.dataset.away;
    this.element.dataset.reason = outcome.reason;
    const hidden = shown(this.#content).length - this.#manuscript.shown.length;
    if (hidden > 0) this.#say(`${hidden.toLocaleString()} more characters are not shown; Copy has them all.`);
    else if (outcome.reason === "error") this.#say(outcome.message || "The answer broke off.", true);
    else this.#say({ length: "Cut at the length you allowed.", cancelled: "Stopped." }[outcome.reason] ?? "");
    this.#speak(true);
    this.#onEnded(this, outcome);
  }

  #render() {
    cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.#manuscript.render();
  }

  #highlighter(fence) {
    if (!this.#highlighters.has(fence)) {
      this.#highlighters.set(fence, null);
      highlighter(fence).then((highlight) => {
        this.#highlighters.set(fence, highlight);
        if (highlight === null) return;
        this.#manuscript.again();
        this.#render();
      });
    }
    return this.#highlighters.get(fence);
  }

  /** Where the draft stood, whatever the text around it does from now on. */
  #lift(texts) {
    this.#render();
    const words = texts.slice(0, GHOST_TOKENS).map((text) => (text === null ? UNKNOWN : visible(text)));
    const ghost = make("span", { class: "ghost", "aria-hidden": "true" }, words.join(""));
    const [here, around] = [this.#pending.getBoundingClientRect(), this.#text.getBoundingClientRect()];
    ghost.style.left = `${here.left - around.left}px`;
    ghost.style.top = `${here.top - around.top}px`;
    ghost.addEventListener("animationend", () => ghost.remove());
    this.#ghosts.append(ghost);
  }

  /** A stop string was cut off: what lies behind it leaves the page as well. */
  #cut(bytes) {
    this.#content = keepBytes(this.#content, bytes);
    this.#manuscript.cut(Math.min(MOST_SHOWN, shown(this.#content).length));
  }

  #say(message, problem = false) {
    this.#note.textContent = message;
    this.#note.hidden = message === "";
    this.#note.toggleAttribute("data-problem", problem);
  }

  /** To screen readers in whole sentences: token by token they would stutter. */
  #speak(all) {
    const unspoken = this.#content.slice(this.#spoken);
    const flood = unspoken.length > MOST_SPOKEN;
    const spoken = all || flood ? unspoken : sentences(unspoken)[0];
    this.#spoken += spoken.length;
    if (spoken.trim() !== "" && !flood) this.#announce(visible(spoken));
  }
}

/** As it goes to the page. Markdown's lines end in one character, so that places in the text stay what they are. */
function shown(text) {
  return visible(text).replaceAll("\r", "");
}
