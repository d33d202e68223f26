/**
 * Where a shelf gets its drafter from: llama.cpp in WebAssembly, which every browser runs, and WebLLM, which needs
 * WebGPU and a model that was compiled for it. Libraries are fetched when a model is loaded, not before.
 */

import { ModelDrafter } from "./model.js";
import { aboutDrafter, aboutWebLlm, drafterFile, isKept } from "./store.js";
import { hasGpu, WebLlmDrafter } from "./webllm.js";

/** Half the cores: the rest of the machine has the page to draw, and on a laptop perhaps the gateway to run. */
const MOST_THREADS = 4;
const WLLAMA = "/vendor/wllama";
const WEBLLM = "/vendor/webllm/index.js";

export const wasm = {
  possible: async () => true,
  about: (key) => aboutDrafter(key),
  hasLibrary: () => present(`${WLLAMA}/index.js`),
  atOnce: async (about) => (await isKept(about)) || local(),

  /** `onProgress` gets bytes received, then null while the file is opened. */
  async load({ about, key, onProgress }) {
    const file = await drafterFile(about, { key, onProgress });
    onProgress(null);
    const { Wllama } = await import(`${WLLAMA}/index.js`);
    return ModelDrafter.load({ Wllama, base: WLLAMA, file, name: about.id, threads: threadsHere() });
  },
};

export const webgpu = {
  possible: () => hasGpu(),
  about: (key) => aboutWebLlm(key),
  hasLibrary: () => present(WEBLLM),
  atOnce: async () => false,

  async load({ about, onProgress }) {
    const { CreateMLCEngine } = await import(WEBLLM);
    return WebLlmDrafter.load({ CreateMLCEngine, about, onProgress: (share) => onProgress(share * about.bytes) });
  },
};

/** Threads need memory that is shared between workers, which browsers give to isolated pages only. */
export function threadsHere() {
  if (!globalThis.crossOriginIsolated) return 1;
  const asked = Number(new URLSearchParams(location.search).get("threads"));
  if (asked > 0) return asked;
  return Math.max(1, Math.min(MOST_THREADS, Math.floor((navigator.hardwareConcurrency ?? 1) / 2)));
}

async function present(path) {
  return (await fetch(path, { method: "HEAD" })).ok;
}

function local() {
  return ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
}
