/**
 * Replays schedules on the port of the drafting state machine: a JSON array of {limit, block, committed, steps} on
 * stdin, where a step is [name, argument]; what each step showed comes out as JSON. test_port.py compares it with the
 * Python original.
 */

import { text } from "node:stream/consumers";

import { decode } from "../../static/js/protocol/frames.js";
import { DraftingSession } from "../../static/js/protocol/drafting.js";

const STEPS = {
  draft: (session, token) => session.wantsDraft && session.draft(token),
  block: (session, flush) => {
    const block = session.nextBlock({ flush });
    return block && [block.stream, block.epoch, block.start, block.tokens];
  },
  commit: (session, frame) => {
    const { committed, agreed, rolledBack, keep, feed } = session.commit(decode(frame));
    return [[...committed], agreed, rolledBack, keep, feed];
  },
  opened: (session, [frame, resumed]) => session.opened(decode(frame), { resumed }),
  refused: (session, frame) => session.refused(decode(frame)),
  window: (session, frame) => session.widen(decode(frame)),
  finish: (session, frame) => session.finished(decode(frame)),
};

function replay({ limit, block, committed, steps }) {
  const session = new DraftingSession({ stream: 1, limit: limit ?? Infinity, block, committed });
  return steps.map(([name, argument]) => {
    let shown;
    try {
      const result = STEPS[name](session, argument);
      shown = Array.isArray(result) ? result : null;
    } catch (error) {
      if (error.code === undefined) throw error;
      shown = error.code;
    }
    const { drafted, sent, agreed, rolledBack, rollbacks, accepted } = session.stats;
    const stats = [drafted, sent, agreed, rolledBack, rollbacks, accepted];
    return [
      shown,
      session.stream,
      session.epoch,
      session.head,
      session.end,
      session.ahead,
      session.wantsDraft,
      [...session.tail],
      stats,
    ];
  });
}

process.stdout.write(JSON.stringify(JSON.parse(await text(process.stdin)).map(replay)));
