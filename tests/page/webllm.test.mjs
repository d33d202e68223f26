/**
 * The drafter on the GPU. WebGPU is not here, so no model runs: what is tested is that the package has what the drafter
 * calls, by its own names, and that the drafter asks it for the right tokens.
 */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";

import { hasGpu, WebLlmDrafter } from "../../static/js/drafters/webllm.js";

const PACKAGE = new URL("../../node_modules/@mlc-ai/web-llm/lib/index.js", import.meta.url);
const ABOUT = { id: "draft", url: "/m/resolve/main/", library: "/m/resolve/main/model.wasm", ends: [2] };
const VOCABULARY = 50;
globalThis.location ??= { href: "http://127.0.0.1:8000/" };

/**
 * An engine whose logits are a function of the tokens in its cache: the successor of the last token is likeliest by far,
 * the one after it comes second. It refuses what the real one couldn't do.
 */
function engine(options) {
  const [[id, reader]] = options.logitProcessorRegistry;
  const engine = {
    id,
    options,
    cache: [],
    computed: [],
    async resetChat() {
      engine.cache = [];
      reader.resetState();
    },
    async forwardTokensAndSample(tokens, isPrefill) {
      assert.ok(tokens.length > 0);
      assert.ok(isPrefill || tokens.length === 1);
      engine.cache.push(...tokens);
      engine.computed.push(tokens.length);
      const logits = new Float32Array(VOCABULARY);
      logits[(tokens.at(-1) + 1) % VOCABULARY] = 9;
      logits[(tokens.at(-1) + 2) % VOCABULARY] = 6;
      const given = reader.processLogits(logits);
      logits.fill(0); // its memory is used again
      reader.processSampledToken(given.length);
      return 0;
    },
    async unload() {},
  };
  return engine;
}

async function loaded() {
  let made;
  const shares = [];
  const CreateMLCEngine = async (id, options) => {
    options.initProgressCallback({ progress: 0.5, text: "" });
    return (made = engine(options));
  };
  const drafter = await WebLlmDrafter.load({ CreateMLCEngine, about: ABOUT, onProgress: (share) => shares.push(share) });
  return { drafter, made, shares };
}

test("it is loaded from the gateway's addresses, plain, and says how far it is", async () => {
  const { made, shares } = await loaded();
  const [record] = made.options.appConfig.model_list;
  assert.equal(record.model, "http://127.0.0.1:8000/m/resolve/main/");
  assert.equal(record.model_lib, "http://127.0.0.1:8000/m/resolve/main/model.wasm");
  assert.deepEqual([record.overrides.temperature, record.overrides.repetition_penalty], [0, 1]);
  assert.deepEqual(shares, [0.5]);
});

test("drafting on computes one token each; a rollback computes the whole context again, and nothing stale is left", async () => {
  const { drafter, made } = await loaded();
  const draft = drafter.begin([10, 11, 12], { sampling: { temperature: 0 } });
  const proposed = [await draft.propose(), await draft.propose(), await draft.propose()];
  assert.deepEqual(proposed.map(({ token }) => token), [13, 14, 15]);
  assert.deepEqual(made.computed, [3, 1, 1]);
  draft.rollback(1);
  draft.feed([30]);
  const after = await draft.propose();
  assert.equal(after.token, 31);
  assert.ok(after.confidence > 0.8 && after.confidence < 1);
  assert.deepEqual(made.cache, [10, 11, 12, 13, 30]);
  assert.deepEqual(made.computed, [3, 1, 1, 5]);
});

test("two streams in turn never see each other's context", async () => {
  const { drafter } = await loaded();
  const [a, b] = [drafter.begin([10]), drafter.begin([20, 21])];
  const tokens = [];
  for (let i = 0; i < 3; i++) {
    const both = await Promise.all([a.propose(), b.propose()]);
    tokens.push(both.map(({ token }) => token));
  }
  assert.deepEqual(tokens, [
    [11, 22],
    [12, 23],
    [13, 24],
  ]);
});

test("at temperature 1 it picks by the cloud's noise, the same each time; nothing is drafted behind an end", async () => {
  const { drafter } = await loaded();
  const sampling = { temperature: 1, seed: 7 };
  const draw = async () => {
    const draft = drafter.begin([10], { sampling });
    return [(await draft.propose()).token, (await draft.propose()).token, (await draft.propose()).token];
  };
  assert.deepEqual(await draw(), await draw());
  const ended = drafter.begin([10], { committed: [2] });
  assert.equal(await ended.propose(), null);
  assert.deepEqual([drafter.textOf(2), drafter.textOf(3)], ["", null]);
});

test("a browser without WebGPU, or with none to give, has no GPU", async () => {
  assert.equal(await hasGpu(undefined), false);
  assert.equal(await hasGpu({ requestAdapter: async () => null }), false);
  assert.equal(await hasGpu({ requestAdapter: async () => ({}) }), true);
});

test("the package has every call that the drafter makes", { skip: !existsSync(PACKAGE) }, async () => {
  const { CreateMLCEngine, MLCEngine } = await import(PACKAGE);
  assert.equal(typeof CreateMLCEngine, "function");
  const calls = { forwardTokensAndSample: 3, resetChat: 0, unload: 0 };
  for (const [name, parameters] of Object.entries(calls)) assert.equal(MLCEngine.prototype[name].length, parameters, name);
  assert.equal(typeof MLCEngine.prototype.setLogitProcessorRegistry, "function");
});
