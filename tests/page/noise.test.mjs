/** The noise of docs/protocol-vectors.json: words to the bit, noise as docs/sampling.md allows. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { noise, philox4x32 } from "../../static/js/protocol/noise.js";

const VECTORS = JSON.parse(readFileSync(new URL("../../docs/protocol-vectors.json", import.meta.url), "utf8"));
const word = (hex) => parseInt(hex, 16);

test("philox gives the words of every vector", () => {
  for (const { counter, key, words } of VECTORS.philox)
    assert.deepEqual(philox4x32(counter.map(word), key.map(word)), words.map(word));
});

test("noise is that of the cloud, to twelve digits", () => {
  for (const { seed, position, choice, token, g } of VECTORS.noise)
    assert.ok(Math.abs(noise(seed, position, choice, token) - g) <= 1e-12 * Math.max(1, Math.abs(g)), `${seed} ${token}`);
});
