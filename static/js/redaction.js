/**
 * Personal data that has a shape (addresses, numbers, keys) is replaced by stable signs before a question leaves, and
 * put back into the answer here. Names and places have no shape and stay: the page says so. The device's own client
 * (`paceline-edge`) finds more.
 */

/** Kind → pattern and, where digits alone say little, a check. Earlier ones go first. */
const SHAPES = [
  ["KEY", /\b(?:sk|pk|ghp|gho|xox[bp]|AKIA)[-_A-Za-z0-9]{12,}\b/g],
  ["EMAIL", /[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g],
  ["IBAN", /\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b/g, iban],
  ["CARD", /\b\d(?:[ -]?\d){12,18}\b/g, luhn],
  ["PHONE", /(?<![\w.])(?:\+|00)\d(?:[ ()/-]?\d){7,14}\b|(?<![\w.])\(?0\d{1,4}\)?[ /-]\d(?:[ -]?\d){4,9}\b/g],
];

export class Redaction {
  #signs;
  #texts;

  /** @param {[string, string][]} kept [sign, text] pairs of an earlier life of the page */
  constructor(kept = []) {
    this.#texts = new Map(kept);
    this.#signs = new Map(kept.map(([sign, text]) => [text, sign]));
  }

  /** The text with signs; the same data gets the same sign all along the conversation. */
  redact(text) {
    return SHAPES.reduce(
      (left, [kind, pattern, check = () => true]) =>
        left.replace(pattern, (found) => (check(found) ? this.#sign(kind, found) : found)),
      text,
    );
  }

  /** [sign, text] pairs so far. */
  get kept() {
    return [...this.#texts];
  }

  #sign(kind, text) {
    if (!this.#signs.has(text)) {
      const count = [...this.#texts.keys()].filter((sign) => sign.startsWith(`[${kind}_`)).length;
      const sign = `[${kind}_${count + 1}]`;
      this.#signs.set(text, sign);
      this.#texts.set(sign, text);
    }
    return this.#signs.get(text);
  }

  /** Puts the data back into an answer that comes in pieces. */
  restorer() {
    return new Restorer(this.#texts);
  }
}

/** Holds back what may be the beginning of a sign until it is one or isn't. */
class Restorer {
  #texts;
  #held = [];

  constructor(texts) {
    this.#texts = texts;
  }

  /** @param {{text: string, origin: string}} piece @returns {{text: string, origin: string}[]} what can be shown now */
  push(piece) {
    this.#held.push(piece);
    const text = this.#held.map((held) => held.text).join("");
    const open = text.lastIndexOf("[");
    if (open >= 0 && [...this.#texts.keys()].some((sign) => sign !== text.slice(open) && sign.startsWith(text.slice(open))))
      return [];
    return this.flush();
  }

  flush() {
    const held = this.#held.splice(0);
    const text = held.map((piece) => piece.text).join("");
    const restored = [...this.#texts].reduce((left, [sign, data]) => left.replaceAll(sign, data), text);
    if (restored === text) return held;
    return [{ text: restored, origin: held.at(-1).origin }];
  }
}

/** ISO 7812: the check digit of card numbers. */
function luhn(found) {
  const digits = found.replace(/\D/g, "");
  const sum = [...digits].reverse().reduce((total, digit, i) => {
    const value = Number(digit) * (i % 2 ? 2 : 1);
    return total + (value > 9 ? value - 9 : value);
  }, 0);
  return sum % 10 === 0;
}

/** ISO 13616: the number's remainder by 97 is 1. */
function iban(found) {
  const code = found.replaceAll(" ", "");
  const digits = (code.slice(4) + code.slice(0, 4)).replace(/[A-Z]/g, (letter) => letter.charCodeAt(0) - 55);
  return [...digits].reduce((rest, digit) => (rest * 10 + Number(digit)) % 97, 0) === 1;
}
