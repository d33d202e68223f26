/**
 * A step's time as a roofline of its tokens: reading the weights takes `floorMs` however few they are, computing takes
 * `perTokenMs` each; the longer of both is the step's time.
 *
 * Fitted by least squares to the median of each size, since single steps wait for whatever else the machine does: every
 * split into a flat part and a sloped part is tried, and the one with the least error is taken.
 */

/** @param {{tokens: number, ms: number}[]} points @returns {{floorMs: number, perTokenMs: number} | null} null: too few */
export function fitRoofline(points) {
  if (points.length < 3) return null;
  const sorted = medians(points);
  let best = null;
  for (let split = 1; split <= sorted.length; split++) {
    const floorMs = sorted.slice(0, split).reduce((sum, { ms }) => sum + ms, 0) / split;
    const sloped = sorted.slice(split);
    const weight = sloped.reduce((sum, { tokens }) => sum + tokens * tokens, 0);
    const perTokenMs = weight > 0 ? sloped.reduce((sum, { tokens, ms }) => sum + tokens * ms, 0) / weight : 0;
    const fit = { floorMs, perTokenMs };
    const error = sorted.reduce((sum, { tokens, ms }) => sum + (ms - stepMs(fit, tokens)) ** 2, 0);
    if (best === null || error < best.error) best = { fit, error };
  }
  return best.fit;
}

/** One point for each size, by size. */
function medians(points) {
  const sizes = new Map();
  for (const point of points) sizes.set(point.tokens, [...(sizes.get(point.tokens) ?? []), point]);
  return [...sizes]
    .map(([tokens, same]) => ({ tokens, ms: same.map(({ ms }) => ms).sort((a, b) => a - b)[same.length >> 1] }))
    .sort((a, b) => a.tokens - b.tokens);
}

export function stepMs({ floorMs, perTokenMs }, tokens) {
  return Math.max(floorMs, perTokenMs * tokens);
}
