import assert from "node:assert/strict";
import { test } from "node:test";

import { fitRoofline, stepMs } from "../../static/js/roofline.js";

test("the fit finds floor and slope of a roofline, whatever the order of the points", () => {
  const truth = { floorMs: 30, perTokenMs: 6 };
  const points = [64, 1, 2, 32, 4, 5, 6, 8, 16].map((tokens) => ({ tokens, ms: stepMs(truth, tokens) }));
  const fit = fitRoofline(points);
  assert.ok(Math.abs(fit.floorMs - 30) < 0.01 && Math.abs(fit.perTokenMs - 6) < 0.01, JSON.stringify(fit));
});

test("steps of one size give a floor and no slope, two points nothing", () => {
  const same = [1, 1, 1].map((tokens) => ({ tokens, ms: 20 }));
  assert.deepEqual(fitRoofline(same), { floorMs: 20, perTokenMs: 0 });
  assert.equal(fitRoofline(same.slice(1)), null);
});
