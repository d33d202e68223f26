/** A stream that nobody asked for: what the diagram shows until there is a real one. Its events are worked out, not measured. */

import { Trace } from "./trace.js";

const WORDS = "A paceline is a line of cyclists who ride close behind one another . The first rider breaks the wind , and the others save a third of their strength .".split(" ");
/** Positions at which the drafter errs, and with what. */
const ERRORS = new Map([
  [6, "riders"],
  [15, "cyclist"],
  [22, "rest"],
]);
const [TRIP_MS, DRAFT_MS, STEP_MS, DRAFT_STEP_MS, AHEAD] = [80, 27, 96, 18, 8];

/** Eager drafting over a network of 80 ms: each step checks what has arrived by its beginning. */
export function exampleTrace(startedAt = 0) {
  const trace = new Trace({ startedAt, tripMs: () => TRIP_MS });
  const way = TRIP_MS / 2;
  /** Tail of the tab: {position, right, arrives}. */
  let tail = [];
  let [head, cloudHead, draftAt, stepAt] = [0, 0, startedAt + way, startedAt + way];
  const arrivals = [];
  while (head < WORDS.length) {
    const arrival = arrivals[0];
    const drafting = tail.length < AHEAD && head + tail.length < WORDS.length;
    if (drafting && draftAt + DRAFT_MS <= Math.min(stepAt, arrival?.at ?? Infinity)) {
      const [position, began] = [head + tail.length, draftAt];
      draftAt += DRAFT_MS;
      const lost = tail.some(({ right }) => !right);
      const right = !lost && !ERRORS.has(position);
      const text = ` ${ERRORS.get(position) ?? WORDS[position]}`;
      trace.proposed({ began, at: draftAt, position, text });
      trace.sent({ at: draftAt, frame: { type: "draft", start: position }, bytes: 21, texts: [text] });
      tail.push({ position, right, text, arrives: draftAt + way });
    } else if (arrival !== undefined && arrival.at <= stepAt) {
      arrivals.shift();
      const agreed = Math.min(arrival.texts.length, tail.findIndex(({ right }) => !right) >>> 0, tail.length);
      const rolledBack = agreed < arrival.texts.length ? tail.slice(agreed) : [];
      trace.committed({ ...arrival, tail: tail.length, agreed, rolledBack: rolledBack.map(({ text }) => text) });
      head += arrival.texts.length;
      tail = agreed < arrival.texts.length ? [] : tail.slice(agreed);
      draftAt = Math.max(draftAt, arrival.at);
    } else {
      if (cloudHead >= WORDS.length) {
        stepAt = Infinity;
        continue;
      }
      const came = tail.filter(({ position, right, arrives }) => position >= cloudHead && right && arrives <= stepAt).length;
      const texts = WORDS.slice(cloudHead, cloudHead + came + 1).map((word) => ` ${word}`);
      const stepMs = STEP_MS + DRAFT_STEP_MS * came;
      stepAt += stepMs;
      arrivals.push({ at: stepAt + way, start: cloudHead, texts, accepted: Math.min(came, texts.length), bytes: 58, stepMs, queueMs: 0 });
      cloudHead += texts.length;
    }
  }
  trace.ended({ at: startedAt });
  return trace;
}
