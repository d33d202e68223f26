/**
 * What happened in one stream, by time: the material of the lanes and charts, and of the record of what left. It is a
 * `watch` of runtime.js. Times are ms on the page's clock.
 *
 *     drafts     [began, at)      the drafter worked on one token
 *     flights    [at, at + R/2)   a frame on its way up
 *     steps      [.., at − R/2)   the target's step behind a commit; when it ended on the cloud's clock is not known here,
 *                                 so half a round trip is taken off
 *     commits    at               it arrived: how many were drafts in time, and what was rolled back
 */

/** Events kept of each kind; older ones have long left the picture. */
const KEPT = 2000;

export class Trace {
  drafts = [];
  flights = [];
  steps = [];
  commits = [];
  windows = [];
  /** Bytes up and down, summed, by time. */
  traffic = [];
  /** By distance from the head: drafts compared with the target, and how many agreed. */
  compared = [];
  agreed = [];
  endedAt = null;
  #tripMs;
  #up = 0;
  #down = 0;

  /** @param {{startedAt: number, tripMs: () => number}} options `tripMs`: the round-trip time now */
  constructor({ startedAt, tripMs }) {
    this.startedAt = startedAt;
    this.#tripMs = tripMs;
  }

  proposed({ began, at, position, text }) {
    push(this.drafts, { began, at, position, text });
  }

  sent({ at, frame, bytes, texts }) {
    this.#count(at, bytes, 0);
    const position = frame.type === "draft" ? frame.start : null;
    push(this.flights, { at, until: at + this.#tripMs() / 2, type: frame.type, bytes, texts, position });
  }

  committed(commit) {
    const { at, stepMs, queueMs, bytes, agreed, tail, texts } = commit;
    this.#count(at, 0, bytes);
    const left = at - this.#tripMs() / 2;
    if (stepMs > 0) push(this.steps, { began: left - stepMs, at: left, queueMs, tokens: texts.length });
    push(this.commits, { ...commit, left });
    for (let depth = 0; depth < Math.min(tail, texts.length); depth++) {
      this.compared[depth] = (this.compared[depth] ?? 0) + 1;
      this.agreed[depth] = (this.agreed[depth] ?? 0) + (depth < agreed ? 1 : 0);
      if (depth >= agreed) break; // behind the first that differs nothing is compared
    }
    this.#judge(commit);
  }

  /** What became of each draft: `accepted` in time, `late` (right, but the cloud was quicker), or `rolled` back. */
  #judge({ start, agreed, accepted, rolledBack }) {
    for (let i = this.drafts.length - 1; i >= 0 && this.drafts[i].fate === undefined; i--) {
      const depth = this.drafts[i].position - start;
      if (depth < agreed) this.drafts[i].fate = depth < accepted ? "accepted" : "late";
      else if (rolledBack.length > 0) this.drafts[i].fate = "rolled";
    }
  }

  window({ at, ahead }) {
    push(this.windows, { at, ahead });
  }

  ended({ at }) {
    this.endedAt = at;
  }

  #count(at, up, down) {
    this.#up += up;
    this.#down += down;
    push(this.traffic, { at, up: this.#up, down: this.#down });
  }
}

/** One `watch` that tells several. */
export function watching(...watches) {
  const tell = (name) => (event) => watches.forEach((watch) => watch[name]?.(event));
  return Object.fromEntries(["proposed", "sent", "committed", "window", "ended"].map((name) => [name, tell(name)]));
}

function push(list, event) {
  list.push(event);
  if (list.length > KEPT) list.shift();
}
