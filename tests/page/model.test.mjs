import assert from "node:assert/strict";
import { test } from "node:test";

import { ModelDrafter } from "../../static/js/drafters/model.js";

const TEMPLATE = [90, 91, 92];
const END = 0;

/** wllama's calls over a "model" whose next token is the last one's successor; `decoded` keeps how many were computed. */
function llama() {
  const state = { cache: [], decoded: [] };
  return {
    state,
    getNumThreads: () => 1,
    isTokenEOG: (token) => token === END,
    formatChat: async (messages) => messages.map(({ content }) => content).join(""),
    tokenize: async (text) => [...TEMPLATE, ...[...text].map((character) => character.codePointAt(0))],
    kvClear: async () => (state.cache = []),
    kvRemove: async (keep) => (state.cache.length = keep),
    decode: async (tokens) => {
      assert.ok(tokens.length > 0);
      state.decoded.push(tokens.length);
      state.cache.push(...tokens);
    },
    getLogits: async (count) => [{ token: state.cache.at(-1) + 1, p: 0.9 }].slice(0, count),
  };
}

function drafterOn(runtime) {
  return new ModelDrafter(runtime, { name: "m", context: 64, vocabulary: [] });
}

test("what the template writes before any question is computed once, before there is one", async () => {
  const runtime = llama();
  const drafter = drafterOn(runtime);
  await drafter.warm();
  const draft = drafter.begin(await drafter.encode([{ role: "user", content: "ab" }]));
  assert.equal((await draft.propose()).token, "b".codePointAt(0) + 1);
  assert.deepEqual(runtime.state.decoded, [TEMPLATE.length, 2]);
});

test("a rollback decodes again from the first token that differs, and at least the last one", async () => {
  const runtime = llama();
  const draft = drafterOn(runtime).begin([10]);
  for (const expected of [11, 12, 13]) assert.equal((await draft.propose()).token, expected);
  draft.rollback(1);
  assert.equal((await draft.propose()).token, 12); // nothing new: the last token's logits are made anew
  draft.rollback(1);
  draft.feed([30]);
  assert.equal((await draft.propose()).token, 31);
  assert.deepEqual(runtime.state.cache, [10, 11, 30]);
  assert.deepEqual(runtime.state.decoded, [1, 1, 1, 1, 1]);
});
