import assert from "node:assert/strict";
import { test } from "node:test";

import { InsistentDrafter } from "../../static/js/drafters/insistent.js";
import { NgramDrafter } from "../../static/js/drafters/ngram.js";

test("where n-grams have no idea it repeats the last token, and takes a rollback like any other", async () => {
  const continuation = new InsistentDrafter(new NgramDrafter()).begin([1, 2, 3], {});
  assert.deepEqual(await continuation.propose(), { token: 3, confidence: 0 });
  assert.equal(await continuation.propose(), null, "one is enough for a round");
  continuation.rollback(0);
  continuation.feed([1, 2]);
  assert.equal((await continuation.propose()).token, 3, "the n-gram's own idea goes first");
});
