/**
 * One answer on the page: committed tokens tinted by origin, pending drafts dim behind the head, drafts that were
 * rolled back lifting off from where they stood. It is the `view` of runtime.js, and knows nothing of the protocol.
 */

import { keepBytes, sentences, visible } from "./text.js";

/** More would only be clutter: a ghost is gone in a second. */
const GHOST_TOKENS = 4;
/** Stands for a draft whose text this tab hasn't seen yet. */
const UNKNOWN = "·";

export class AnswerView {
  #text;
  #pending;
  #note;
  #announce;
  /** Characters of the content that screen readers were given. */
  #spoken = 0;
  #content = "";
  #onEnded;

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
    this.#note = make("p", { class: "note", role: "status", hidden: "" });
    this.element.append(how, this.#text, this.#note);
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
      this.#append(visible(text), origin);
    });
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
    this.element.setAttribute("aria-busy", "false");
    delete this.element.dataset.away;
    this.element.dataset.reason = outcome.reason;
    if (outcome.reason === "error") this.#say(outcome.message || "The answer broke off.", true);
    else this.#say({ length: "Cut at the length you allowed.", cancelled: "Stopped." }[outcome.reason] ?? "");
    this.#speak(true);
    this.#onEnded(this, outcome);
  }

  /** The space before a word stays untinted: a tint would hang over the end of a line. */
  #append(text, origin) {
    const word = text.trimStart();
    if (word.length < text.length) this.#pending.before(text.slice(0, text.length - word.length));
    if (word !== "") this.#pending.before(make("span", { class: "fresh", "data-origin": origin }, word));
  }

  #lift(texts) {
    const shown = texts.slice(0, GHOST_TOKENS).map((text) => (text === null ? UNKNOWN : visible(text)));
    const ghost = make("span", { class: "ghost", "aria-hidden": "true" }, shown.join(""));
    ghost.addEventListener("animationend", () => ghost.remove());
    this.#pending.before(ghost);
  }

  /** A stop string was cut off: what lies behind it leaves the page as well. */
  #cut(bytes) {
    this.#content = keepBytes(this.#content, bytes);
    let left = visible(this.#content).length;
    for (const node of [...this.#text.childNodes]) {
      if (node === this.#pending || node.className === "ghost") continue;
      const text = node.textContent;
      if (text.length > left) node.textContent = text.slice(0, left);
      left = Math.max(0, left - text.length);
    }
  }

  #say(message, problem = false) {
    this.#note.textContent = message;
    this.#note.hidden = message === "";
    this.#note.toggleAttribute("data-problem", problem);
  }

  /** To screen readers in whole sentences: token by token they would stutter. */
  #speak(all) {
    const unspoken = this.#content.slice(this.#spoken);
    const spoken = all ? unspoken : sentences(unspoken)[0];
    this.#spoken += spoken.length;
    if (spoken.trim() !== "") this.#announce(visible(spoken));
  }
}

/** An element with attributes and text; attributes and text only, never markup. */
export function make(name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== "") element.textContent = text;
  return element;
}
