/**
 * Text by token, for an edge without a tokenizer. A commit's text covers all its tokens; `cuts` says how many
 * characters (Unicode code points) each of them gave. What was seen once is remembered, so that drafts can be shown as
 * well: a draft by n-gram only holds ids that occurred before.
 */
export class Pieces {
  #known;

  /** @param {[number, string][]} known from an earlier life of the page */
  constructor(known = []) {
    this.#known = new Map(known);
  }

  get known() {
    return [...this.#known];
  }

  /** The prompt's pieces, as `opened` brings them. */
  learnPrompt(tokens, pieces) {
    if (pieces.length === tokens.length) tokens.forEach((token, i) => this.#known.set(token, pieces[i]));
  }

  /** A token's text, or null when it was never seen. */
  of(token) {
    return this.#known.get(token) ?? null;
  }

  /**
   * One string per token of a commit; joined they are its text. Without usable cuts all the text goes to the last
   * token: right as a whole, only tinted more coarsely.
   */
  split({ tokens, text, cuts }) {
    const characters = Array.from(text);
    const usable = cuts.length === tokens.length && cuts.reduce((sum, n) => sum + n, 0) === characters.length;
    if (!usable) {
      if (tokens.length === 1 && text !== "") this.#known.set(tokens[0], text);
      return tokens.map((_, i) => (i === tokens.length - 1 ? text : ""));
    }
    let at = 0;
    return tokens.map((token, i) => {
      const piece = characters.slice(at, (at += cuts[i])).join("");
      if (piece !== "") this.#known.set(token, piece);
      return piece;
    });
  }
}
