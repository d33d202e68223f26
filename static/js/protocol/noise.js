/**
 * Gumbel noise that is a function of seed, position, token and choice: the port of edge/protocol/noise.py
 * (Philox4x32-10; docs/sampling.md has the layout). A drafter that adds it to its own scores picks what the cloud
 * would pick from the same scores, and so agrees more often at temperature > 0.
 */

const M0 = 0xd2511f53;
const M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9;
const W1 = 0xbb67ae85;

/** High and low 32 bits of a product of two 32-bit words. */
function product(a, b) {
  const low = Math.imul(a, b) >>> 0;
  const [aHigh, aLow, bHigh, bLow] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff];
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const carried = aLow * bHigh + (middle % 0x10000);
  const high = aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(carried / 0x10000);
  return [high >>> 0, low];
}

/** @param {number[]} counter four words @param {number[]} key two words @returns {number[]} four words */
export function philox4x32([c0, c1, c2, c3], [k0, k1]) {
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = product(M0, c0);
    const [high1, low1] = product(M1, c2);
    [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
    k0 = (k0 + W0) >>> 0;
    k1 = (k1 + W1) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** g = −log(−log u), u = (b + ½)·2⁻⁵², b the first word's 32 bits above the upper 20 of the second. */
export function noise(seed, position, choice, token) {
  const key = [Number(BigInt(seed) & 0xffffffffn), Number(BigInt(seed) >> 32n)];
  const [x0, x1] = philox4x32([position, token, choice, 0], key);
  return -Math.log(-Math.log((x0 * 0x100000 + (x1 >>> 12) + 0.5) * 2 ** -52));
}
