/**
 * The figures under an answer, from arrival times and counts. ITL is (last − first committed token's arrival) / (n − 1)
 * at the client; tokens that were only drafted never count.
 */
export class Figures {
  #askedAt;
  #firstAt = null;
  #lastAt = null;
  #largestGap = 0;
  #commits = 0;
  tokens = 0;
  bytesUp = 0;
  bytesDown = 0;

  /** @param {number} askedAt when the question left, ms on any monotonic clock */
  constructor(askedAt) {
    this.#askedAt = askedAt;
  }

  /** `count` tokens arrived together at `now`, ms. */
  arrived(count, now) {
    if (count === 0) return;
    this.#firstAt ??= now;
    if (this.#lastAt !== null) this.#largestGap = Math.max(this.#largestGap, now - this.#lastAt);
    this.#lastAt = now;
    this.#commits += 1;
    this.tokens += count;
  }

  /** Time to first token, ms; null before it. */
  get ttftMs() {
    return this.#firstAt === null ? null : this.#firstAt - this.#askedAt;
  }

  /** Inter-token latency, ms; null below two tokens. */
  get itlMs() {
    return this.tokens > 1 && this.#commits > 1 ? (this.#lastAt - this.#firstAt) / (this.tokens - 1) : null;
  }

  /** Largest gap between two commits, ms. */
  get largestGapMs() {
    return this.#commits > 1 ? this.#largestGap : null;
  }

  get bytesUpPerToken() {
    return this.tokens ? this.bytesUp / this.tokens : null;
  }

  get bytesDownPerToken() {
    return this.tokens ? this.bytesDown / this.tokens : null;
  }
}

/** α as the edge sees it: of the drafted tokens that met a commit, the share that agreed. Null before the first. */
export function acceptanceRate(stats) {
  const compared = stats.agreed + stats.rollbacks;
  return compared ? stats.agreed / compared : null;
}
