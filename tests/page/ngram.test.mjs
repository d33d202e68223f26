import assert from "node:assert/strict";
import { test } from "node:test";

import { NgramDrafter } from "../../static/js/drafters/ngram.js";

function drafts(continuation, count) {
  const tokens = [];
  while (tokens.length < count) {
    const proposal = continuation.propose();
    if (proposal === null) break;
    tokens.push(proposal.token);
  }
  return tokens;
}

test("what followed the last tokens before is drafted", () => {
  const continuation = new NgramDrafter().begin([1, 2, 3, 4, 9, 1, 2]);
  assert.deepEqual(drafts(continuation, 3), [3, 4, 9]);
});

test("nothing occurred twice: nothing to propose, until more is fed", () => {
  const continuation = new NgramDrafter().begin([1, 2, 3]);
  assert.equal(continuation.propose(), null);
  continuation.feed([1, 2]);
  assert.deepEqual(drafts(continuation, 1), [3]);
});

test("the longest match wins over the latest one", () => {
  const continuation = new NgramDrafter().begin([1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3]);
  assert.deepEqual(drafts(continuation, 1), [7]);
});

test("a rollback forgets output tokens, never the prompt's, and what is fed then counts", () => {
  const continuation = new NgramDrafter().begin([1, 2, 3, 4, 1, 2]);
  drafts(continuation, 2);
  continuation.rollback(0);
  continuation.feed([3, 9]);
  assert.equal(continuation.propose(), null);
  continuation.rollback(1);
  assert.deepEqual(drafts(continuation, 1), [4]);
});

test("what was committed before the start is context too", () => {
  const continuation = new NgramDrafter().begin([1, 2], { committed: [3, 1, 2] });
  assert.deepEqual(drafts(continuation, 1), [3]);
});

test("confidence grows along a copy that holds: the chance of n tokens behind a match of l is l / (l + n)", () => {
  const continuation = new NgramDrafter({ longest: 3 }).begin([1, 2, 3, 4, 5, 6, 7, 1, 2, 3]);
  let chance = 1;
  for (let n = 1; n <= 4; n++) {
    chance *= continuation.propose().confidence;
    assert.ok(Math.abs(chance - 3 / (3 + n)) < 1e-12);
  }
});
