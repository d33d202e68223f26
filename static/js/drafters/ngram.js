/**
 * Prompt lookup (arXiv 2304.04487; Saxena 2023): the last few tokens are searched in what came before, and what
 * followed them there is the draft. No model, no tokenizer: it works on the target's own ids. Strong where answers
 * repeat their question (editing, quoting, code), silent elsewhere.
 *
 * The seam is edge/drafters/base.py's: `begin` gives a continuation whose length counts output tokens. `propose` may
 * return a promise; this one answers at once.
 */
export class NgramDrafter {
  name = "n-gram";
  fingerprint = "";

  /**
   * @param {{longest?: number, shortest?: number}} options how much of the text's end is compared, tokens; less isn't a
   * match
   */
  constructor({ longest = 8, shortest = 2 } = {}) {
    this.longest = longest;
    this.shortest = shortest;
  }

  begin(prompt, { committed = [] } = {}) {
    return new NgramContinuation(prompt, committed, this.longest, this.shortest);
  }

  close() {}
}

class NgramContinuation {
  #tokens;
  #promptLength;
  #longest;
  #shortest;
  /** Where the run that is being copied goes on; null: look it up again. */
  #source = null;

  constructor(prompt, committed, longest, shortest) {
    this.#tokens = [...prompt, ...committed];
    this.#promptLength = prompt.length;
    this.#longest = longest;
    this.#shortest = shortest;
  }

  /** @returns {{token: number, confidence: number} | null} */
  propose() {
    const found = this.#source ?? this.#lookUp();
    if (found === null) return null;
    const token = this.#tokens[found.at];
    // The longer two texts have run in parallel, the likelier they go on. So the chance that n more tokens hold falls
    // as l / (l + n) behind a match of l, and once they are committed the match is as much longer.
    this.#source = { at: found.at + 1, length: found.length + 1 };
    this.#tokens.push(token);
    return { token, confidence: found.length / (found.length + 1) };
  }

  rollback(length) {
    this.#tokens.length = Math.min(this.#tokens.length, this.#promptLength + length);
    this.#source = null;
  }

  feed(tokens) {
    for (const token of tokens) this.#tokens.push(token);
    this.#source = null;
  }

  close() {
    this.#tokens = [];
    this.#source = null;
  }

  /** The latest earlier place of the longest suffix that occurs twice. */
  #lookUp() {
    const tokens = this.#tokens;
    let best = null;
    for (let end = tokens.length - 1; end >= this.#shortest; end--) {
      const length = this.#commonSuffix(end);
      if (length >= this.#shortest && length > (best?.length ?? 0)) best = { at: end, length };
      if (best?.length === this.#longest) break;
    }
    return best;
  }

  /** Number of tokens before `end` that equal the last ones, at most the longest n-gram. */
  #commonSuffix(end) {
    const tokens = this.#tokens;
    const limit = Math.min(this.#longest, end);
    let length = 0;
    while (length < limit && tokens[end - 1 - length] === tokens[tokens.length - 1 - length]) length++;
    return length;
  }
}
