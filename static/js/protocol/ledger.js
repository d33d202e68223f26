/**
 * The committed output of one stream: the port of edge/protocol/ledger.py. It only grows; what overlaps must be equal;
 * a commit that would leave a hole is an error.
 */

import { Contradiction, Gap } from "./errors.js";

export class Ledger {
  /** @param {number[]} committed */
  constructor(committed = []) {
    this.tokens = [...committed];
  }

  get length() {
    return this.tokens.length;
  }

  /** Take a commit; returns what was new in it. Throws Gap or Contradiction, and then has changed nothing. */
  apply(start, tokens) {
    const held = this.tokens.length;
    if (start > held) throw new Gap(`commit starts at ${start}, but only ${held} tokens are held`);
    const overlap = Math.min(held - start, tokens.length);
    for (let i = 0; i < overlap; i++) {
      if (this.tokens[start + i] !== tokens[i])
        throw new Contradiction(`commit at ${start} differs from what is held there`);
    }
    const fresh = tokens.slice(overlap);
    for (const token of fresh) this.tokens.push(token);
    return fresh;
  }
}

/** Length of the common prefix of two runs of tokens. */
export function agreement(a, b) {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) if (a[i] !== b[i]) return i;
  return length;
}
