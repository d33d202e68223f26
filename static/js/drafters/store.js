/**
 * The draft model's file: from the gateway once, with progress, and from the browser's cache ever after.
 * The address holds the file's version, so what is cached under it is right for good; other versions are thrown away.
 */

const STORE = "paceline-drafter";

/**
 * What draft model the gateway has: {id, bytes, url, fingerprint}; null if it has none. Throws TypeError when it can't
 * be reached.
 */
export function aboutDrafter(key, options) {
  return about("/v1/drafter", key, options);
}

/** The same of a model for WebLLM: {id, bytes, url, library, fingerprint, ends}. WebLLM keeps its files itself. */
export function aboutWebLlm(key, options) {
  return about("/v1/drafter/webllm", key, options);
}

async function about(address, key, { fetch = globalThis.fetch } = {}) {
  const response = await fetch(address, { headers: { authorization: `Bearer ${key}` } });
  return response.ok ? response.json() : null;
}

/** Whether the file is here already. */
export async function isKept({ url }, { caches = globalThis.caches } = {}) {
  if (caches === undefined) return false; // not a secure context
  return (await (await caches.open(STORE)).match(url)) !== undefined;
}

/**
 * @param {{url: string, bytes: number}} about @param {{key: string, onProgress: (bytes: number) => void}} options
 * @returns {Promise<Blob>}
 */
export async function drafterFile({ url, bytes }, options) {
  const { key, onProgress, fetch = globalThis.fetch, caches = globalThis.caches } = options;
  const store = await caches?.open(STORE);
  const kept = await store?.match(url);
  if (kept !== undefined) return kept.blob();
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
  if (!response.ok) throw new Error(`The gateway did not send the draft model (HTTP ${response.status}).`);
  const parts = [];
  let received = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onProgress((received += value.length));
  }
  if (received !== bytes) throw new Error("The draft model came only in part. Try again.");
  const file = new Blob(parts);
  if (store !== undefined) await keep(store, url, file);
  return file;
}

/** A browser that is short of space may refuse: then the file is fetched again next time, and nothing else. */
async function keep(store, url, file) {
  for (const request of await store.keys()) await store.delete(request);
  try {
    await store.put(url, new Response(file));
  } catch (error) {
    if (error.name !== "QuotaExceededError") throw error;
  }
}
