/**
 * The edge's state machine: the port of edge/protocol/drafting.py, which gives the rules and why they are so.
 *
 *     position   0            head              sent             end
 *                │ committed   │ tail: in flight │ tail: not sent │
 *
 * Pure: frames go in, frames and what changed come out. Fields of frames keep the wire's names.
 */

import { Contradiction } from "./errors.js";
import { agreement, Ledger } from "./ledger.js";

export class DraftingSession {
  #sent;

  /**
   * @param {{stream: number, window?: number, limit?: number, block?: number, epoch?: number, committed?: number[]}}
   *   options `window` is the cloud's word on how far ahead drafting is worth it; `limit` the edge's own bound, which
   *   no window lifts
   */
  constructor({ stream, window = 16, limit = Infinity, block = 1, epoch = 0, committed = [] }) {
    this.stream = stream;
    this.window = window;
    this.limit = limit;
    this.block = block;
    this.epoch = epoch;
    this.ledger = new Ledger(committed);
    this.tail = [];
    this.finish = null;
    /** Counts over the stream's life, in tokens; `rollbacks` is a number of rollbacks. */
    this.stats = { drafted: 0, sent: 0, agreed: 0, rolledBack: 0, rollbacks: 0, accepted: 0 };
    this.#sent = this.ledger.length;
  }

  /** Number of committed tokens. */
  get head() {
    return this.ledger.length;
  }

  /** Position of the next token to draft. */
  get end() {
    return this.ledger.length + this.tail.length;
  }

  /** How many tokens past the head may be drafted; at least 1. */
  get ahead() {
    return Math.max(1, Math.min(this.window, this.limit));
  }

  get wantsDraft() {
    return this.finish === null && this.tail.length < this.ahead;
  }

  /** The drafter's next token, for position `end`. */
  draft(token) {
    this.tail.push(token);
    this.stats.drafted += 1;
  }

  /** The draft to send now, or null: whole blocks, or all that is unsent if `flush` or if drafting has stopped. */
  nextBlock({ flush = false } = {}) {
    let unsent = this.end - this.#sent;
    if (!flush && this.wantsDraft) unsent -= unsent % this.block;
    if (unsent <= 0 || this.finish !== null) return null;
    const start = this.#sent;
    const offset = start - this.head;
    this.#sent += unsent;
    this.stats.sent += unsent;
    const tokens = this.tail.slice(offset, offset + unsent);
    return { type: "draft", stream: this.stream, epoch: this.epoch, start, tokens };
  }

  /**
   * Take a commit. The drafter keeps the first `keep` output tokens and then takes `feed`. Throws Gap or Contradiction,
   * and then has changed nothing.
   * @returns {{committed: number[], agreed: number, rolledBack: number[], keep: number, feed: number[]}}
   */
  commit(frame) {
    const before = this.head;
    const committed = this.ledger.apply(frame.start, frame.tokens);
    const agreed = agreement(this.tail, committed);
    this.stats.agreed += agreed;
    this.stats.accepted += Math.min(frame.drafted, committed.length);
    if (agreed === committed.length) {
      this.tail.splice(0, agreed);
      this.#sent = Math.max(this.#sent, this.head);
      return { committed, agreed, rolledBack: [], keep: this.end, feed: [] };
    }
    // Overtaken (nothing left in the tail to compare) or contradicted: both begin an epoch at the head.
    const rolledBack = this.tail.slice(agreed);
    this.stats.rolledBack += rolledBack.length;
    if (rolledBack.length > 0) this.stats.rollbacks += 1;
    this.tail = [];
    this.#beginEpoch();
    return { committed, agreed, rolledBack, keep: before + agreed, feed: committed.slice(agreed) };
  }

  /** The cloud's answer to `open`, or to `resume` with `resumed`. */
  opened(frame, { resumed = false } = {}) {
    if (frame.head < this.head) throw new Contradiction(`${this.head} tokens are held, the cloud says ${frame.head}`);
    this.stream = frame.stream;
    this.window = frame.window;
    if (resumed || frame.epoch > this.epoch) this.#beginEpoch(frame.epoch);
  }

  /** The cloud refused a draft of this epoch: the whole tail goes again under a new one. Older refusals are ignored. */
  refused(frame) {
    if (frame.epoch !== null && frame.epoch > this.epoch) this.#beginEpoch(frame.epoch);
  }

  /** The cloud says how far ahead drafting is worth it now. A tail beyond it stays; drafting just pauses. */
  widen(frame) {
    this.window = frame.ahead;
  }

  /** The stream is over; returns the drafts that came to nothing. */
  finished(frame) {
    if (frame.length !== this.head)
      throw new Contradiction(`finish says ${frame.length} tokens, ${this.head} are held`);
    this.finish = frame;
    const left = this.tail;
    this.tail = [];
    this.stats.rolledBack += left.length;
    return left;
  }

  #beginEpoch(lowest = 0) {
    this.epoch = Math.max(this.epoch + 1, lowest);
    this.#sent = this.head;
  }
}
