/**
 * How long to wait before the n-th attempt to reconnect, ms: doubling from 250 ms to 8 s, with full jitter in the upper
 * half, so that a restarted gateway isn't met by all its devices at once. `random` gives numbers in [0, 1).
 */
export function backoff(attempt, random) {
  const ceiling = Math.min(8000, 250 * 2 ** attempt);
  return ceiling * (0.5 + 0.5 * random());
}
