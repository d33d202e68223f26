import assert from "node:assert/strict";
import { test } from "node:test";

import { DraftingSession } from "../../static/js/protocol/drafting.js";
import { Contradiction, Gap } from "../../static/js/protocol/errors.js";
import { Ledger } from "../../static/js/protocol/ledger.js";

function session(tail = [], options = {}) {
  const made = new DraftingSession({ stream: 1, ...options });
  for (const token of tail) made.draft(token);
  return made;
}

const commit = (start, tokens, drafted = 0) => ({ type: "commit", stream: 1, start, tokens, drafted });

test("a ledger takes what is new, refuses a hole and a contradiction, and then has not changed", () => {
  const ledger = new Ledger([1, 2]);
  assert.deepEqual(ledger.apply(1, [2, 3]), [3]);
  assert.throws(() => ledger.apply(4, [5]), Gap);
  assert.throws(() => ledger.apply(1, [2, 9, 4]), Contradiction);
  assert.deepEqual(ledger.tokens, [1, 2, 3]);
});

test("an equal commit moves the tail into the ledger and drafting goes on in the same epoch", () => {
  const drafting = session([5, 6, 7]);
  assert.deepEqual(drafting.nextBlock().tokens, [5, 6, 7]);
  const change = drafting.commit(commit(0, [5, 6], 2));
  assert.deepEqual([change.agreed, change.feed, change.rolledBack, change.keep], [2, [], [], 3]);
  assert.deepEqual([drafting.epoch, drafting.head, drafting.tail], [0, 2, [7]]);
  assert.equal(drafting.nextBlock(), null);
});

test("a different commit rolls back and begins an epoch whose first draft starts at the head", () => {
  const drafting = session([5, 6, 7]);
  drafting.nextBlock();
  const change = drafting.commit(commit(0, [5, 9], 1));
  assert.deepEqual([change.agreed, change.rolledBack, change.keep, change.feed], [1, [6, 7], 1, [9]]);
  drafting.draft(10);
  assert.deepEqual(drafting.nextBlock(), { type: "draft", stream: 1, epoch: 1, start: 2, tokens: [10] });
});

test("a commit past the tail overtakes the drafter: the epoch rises, nothing counts as a rollback", () => {
  const drafting = session([5]);
  const change = drafting.commit(commit(0, [5, 6, 7]));
  assert.deepEqual([change.keep, change.feed, change.rolledBack, drafting.epoch], [1, [6, 7], [], 1]);
  assert.equal(drafting.stats.rollbacks, 0);
});

test("after resume and after a refusal the whole tail goes again under a higher epoch", () => {
  const drafting = session([5, 6]);
  drafting.nextBlock();
  drafting.opened({ stream: 4, epoch: 3, head: 0, window: 8 }, { resumed: true });
  assert.deepEqual(drafting.nextBlock(), { type: "draft", stream: 4, epoch: 3, start: 0, tokens: [5, 6] });
  drafting.refused({ epoch: 7 });
  drafting.refused({ epoch: 7 });
  assert.deepEqual([drafting.nextBlock().epoch, drafting.nextBlock()], [7, null]);
});

test("a gateway that knows less than the device is refused", () => {
  const drafting = session([], { committed: [1, 2] });
  assert.throws(() => drafting.opened({ stream: 1, epoch: 0, head: 1, window: 8 }), Contradiction);
});

test("no window lifts the edge's own limit, and at least one token may be drafted", () => {
  const drafting = session([], { limit: 2 });
  drafting.widen({ ahead: 64 });
  assert.equal(drafting.ahead, 2);
  drafting.widen({ ahead: 0 });
  assert.equal(drafting.ahead, 1);
});

test("whole blocks travel while drafting goes on, the rest when it stops", () => {
  const drafting = session([1, 2, 3], { block: 2, window: 4 });
  assert.deepEqual(drafting.nextBlock().tokens, [1, 2]);
  assert.equal(drafting.nextBlock(), null);
  drafting.draft(4);
  assert.deepEqual(drafting.nextBlock().tokens, [3, 4]);
});

test("the end gives back the drafts that came to nothing, and misses no token silently", () => {
  const drafting = session([1, 2]);
  drafting.commit(commit(0, [1]));
  assert.throws(() => drafting.finished({ length: 2 }), Contradiction);
  assert.deepEqual(drafting.finished({ length: 1 }), [2]);
  assert.equal(drafting.wantsDraft, false);
});
