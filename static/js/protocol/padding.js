/**
 * Padding, the port of edge/protocol/padding.py, which says what it hides: each message in an envelope filled up to
 * `size` bytes or the next doubling, one a tick while streams run, and on to the end of a run of ticks.
 */

import { MalformedFrame } from "./errors.js";

export const PADDING = Object.freeze({ size: 512, tickMs: 50 });
export const RUN_TICKS = 64;
export const ENVELOPE_BYTES = 32;
const encoder = new TextEncoder();

/**
 * `message` (an encoded frame; null: nothing to say) in its envelope. `most`: bytes of the largest frame that the receiver
 * takes; filling up doesn't go past it.
 */
export function pad(message, { size, tickMs }, most = Infinity) {
  const head = `["pad",${size},${tickMs},${message ?? "null"},"`;
  const length = encoder.encode(head).length + 2;
  let full = size;
  while (full < length) full *= 2;
  full = Math.max(length, Math.min(full, most + ENVELOPE_BYTES));
  return `${head}${" ".repeat(full - length)}"]`;
}

/** The frame in an envelope, as its parts; null for an empty one; what is no envelope comes back as it is. */
export function unpad(parts) {
  if (parts[0] !== "pad") return parts;
  const inner = parts[3];
  if (inner === null) return null;
  if (!Array.isArray(inner) || inner[0] === "pad") throw new MalformedFrame("an envelope holds one frame, or null");
  return inner;
}

/** When padded messages leave. Times are ms of any one clock. */
export class Cadence {
  #tickMs;
  #origin = 0;
  /** Sent in this run; 0: nothing is running. */
  #ticks = 0;

  constructor(tickMs) {
    this.#tickMs = tickMs;
  }

  get running() {
    return this.#ticks > 0;
  }

  /** How long until the next message may leave. */
  waitMs(now) {
    return this.running ? Math.max(0, this.#origin + this.#ticks * this.#tickMs - now) : 0;
  }

  /** A message has left. `busy`: there are streams, so the next tick brings another one. */
  sent(now, busy) {
    if (!this.running) this.#origin = now;
    // A tick that was slept through is left out: two messages at once would tell of it for longer.
    this.#ticks = Math.max(this.#ticks, Math.floor((now - this.#origin) / this.#tickMs)) + 1;
    if (!busy && this.#ticks % RUN_TICKS === 0) this.#ticks = 0;
  }
}
