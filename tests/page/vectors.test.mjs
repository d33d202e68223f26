/** docs/protocol-vectors.json holds for this port too: the same file that the Python tests read. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { DraftingSession } from "../../static/js/protocol/drafting.js";
import { decode, decodeEdge, encode } from "../../static/js/protocol/frames.js";

const VECTORS = JSON.parse(readFileSync(new URL("../../docs/protocol-vectors.json", import.meta.url), "utf8"));
const UP = new Set(["hello", "open", "draft", "resume", "cancel", "ping"]);

test("every frame of the vectors is understood, and written again as it was", () => {
  for (const { name, json } of VECTORS.frames) {
    const read = UP.has(JSON.parse(json)[0]) ? decodeEdge : decode;
    const frame = read(json);
    // Numbers may be spelt otherwise (0.0 and 0), and what a map left out for its default is filled in.
    if (UP.has(frame.type)) assert.deepEqual(JSON.parse(encode(frame)), JSON.parse(json), name);
    assert.deepEqual(read(encode(frame)), frame, name);
  }
});

const CALLS = {
  draft: (session, token) => session.draft(token),
  next_block: (session, flush) => {
    const block = session.nextBlock({ flush });
    return block && JSON.parse(encode(block));
  },
  commit: (session, frame) => {
    const { committed, agreed, rolledBack, keep, feed } = session.commit(decode(JSON.stringify(frame)));
    return { committed, agreed, rolled_back: rolledBack, keep, feed };
  },
  opened: (session, frame, resumed) => session.opened(decode(JSON.stringify(frame)), { resumed }),
  refused: (session, frame) => session.refused(decode(JSON.stringify(frame))),
  widen: (session, frame) => session.widen(decode(JSON.stringify(frame))),
  finished: (session, frame) => session.finished(decode(JSON.stringify(frame))),
};

const drafting = [VECTORS.rollback, ...VECTORS.schedules].filter(({ machine }) => machine === "drafting");

test("the rollback trace and every drafting schedule come out the same, step for step", () => {
  assert.ok(drafting.length > 10);
  for (const { options, steps, stats } of drafting) {
    const session = new DraftingSession({ ...options, limit: options.limit ?? Infinity });
    steps.forEach(({ call: [name, ...given], gives, state }, index) => {
      assert.deepEqual(CALLS[name](session, ...given) ?? null, gives, `step ${index}, ${name}`);
      const { stream, head, tail, epoch, wantsDraft } = session;
      assert.deepEqual({ stream, head, tail, epoch, wants_draft: wantsDraft }, state, `step ${index}, ${name}`);
    });
    if (stats === undefined) continue;
    const { rolledBack, ...counts } = session.stats;
    assert.deepEqual({ ...counts, rolled_back: rolledBack }, stats);
  }
});
