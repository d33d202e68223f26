/**
 * A small language model as drafter: llama.cpp in WebAssembly (wllama, which runs it in a worker of its own).
 *
 *     cache   0        computed        cached.length
 *             └──── prompt + output ────┘        tokens that the KV cache holds
 *
 * `feed` and `rollback` only move a continuation's end; `propose` brings the cache there, in one batch, and then picks
 * a token. llama.cpp's logits are those of the last decode, whatever was removed since: so the last token is always
 * decoded anew. One cache for all streams: calls queue up, and a stream that finds another's tokens there replaces
 * what differs.
 */

import { agreement } from "../protocol/ledger.js";
import { noise } from "../protocol/noise.js";

/** Candidates that noise may lift to the top at temperature > 0. */
const CANDIDATES = 40;
const BATCH_TOKENS = 256;

export class ModelDrafter {
  #llama;
  #cached = [];
  #queue = Promise.resolve();
  #context;
  #vocabulary;

  /**
   * Load a GGUF: about a second once it is here. Throws what wllama throws.
   * @param {{Wllama: Function, base: string, file: Blob, name: string, threads: number, context?: number}} options
   *   `base`: address of the folder with the two wasm files; more than one thread needs cross-origin isolation
   */
  static async load({ Wllama, base, file, name, threads, context = 2048 }) {
    const paths = {
      "single-thread/wllama.wasm": `${base}/single-thread.wasm`,
      "multi-thread/wllama.wasm": `${base}/multi-thread.wasm`,
    };
    const llama = new Wllama(paths, { suppressNativeLog: true });
    await llama.loadModel([file], { n_ctx: context, n_batch: BATCH_TOKENS, n_threads: threads });
    await llama.samplingInit({ temp: 0 });
    // wllama 2.4 lists as many empty pieces as there are tokens before the tokens' own.
    const vocabulary = (await llama.getVocab()).slice(-llama.getLoadedContextInfo().n_vocab);
    const drafter = new ModelDrafter(llama, { name, context, vocabulary });
    drafter.warm().catch(() => {}); // the first question tells, if it can't
    return drafter;
  }

  constructor(llama, { name, context, vocabulary }) {
    this.#llama = llama;
    this.#vocabulary = vocabulary;
    this.#context = context;
    this.name = name;
    this.threads = llama.getNumThreads();
  }

  /** Compute what the template writes before any question: a tab's prefill is slow, and the cloud doesn't wait for it. */
  async warm() {
    const [one, other] = [await this.encode(asking("1")), await this.encode(asking("?"))];
    await this.candidates(one.slice(0, agreement(one, other)), 1);
  }

  begin(prompt, { committed = [], sampling = {} } = {}) {
    return new ModelContinuation(this, prompt, committed, sampling);
  }

  /** The templated prompt of a conversation, as ids: for answers that this tab gives alone. */
  async encode(messages) {
    return this.#llama.tokenize(await this.#llama.formatChat(messages, true), true);
  }

  /** A token's bytes; none for a token that only ends or divides. */
  bytesOf(token) {
    return this.endsAt(token) ? new Uint8Array() : this.#vocabulary[token];
  }

  textOf(token) {
    return new TextDecoder().decode(this.bytesOf(token));
  }

  endsAt(token) {
    return this.#llama.isTokenEOG(token);
  }

  close() {
    return this.#llama.exit();
  }

  /** The most likely tokens behind `tokens`, most likely first: [{token, p}]. Null when they don't fit the context. */
  candidates(tokens, count) {
    const task = async () => {
      if (tokens.length === 0 || tokens.length >= this.#context) return null;
      await this.#bringTo(tokens);
      return this.#llama.getLogits(count);
    };
    const done = this.#queue.then(task);
    this.#queue = done.catch(() => {}); // who asked is told; who comes next starts from the cache as it is
    return done;
  }

  async #bringTo(tokens) {
    const keep = Math.min(agreement(this.#cached, tokens), tokens.length - 1);
    if (keep === 0) await this.#llama.kvClear();
    else if (keep < this.#cached.length) await this.#llama.kvRemove(keep, -1);
    this.#cached = tokens.slice(0, keep);
    await this.#llama.decode(tokens.slice(keep), {});
    this.#cached = tokens;
  }
}

function asking(content) {
  return [{ role: "user", content }];
}

/** One stream's place in a model: of this drafter, or of any that has `candidates` and `endsAt`. */
export class ModelContinuation {
  #drafter;
  #tokens;
  #promptLength;
  #temperature;
  #seed;
  #choice;
  #closed = false;

  constructor(drafter, prompt, committed, { temperature = 0, seed = 0, choice = 0 }) {
    this.#drafter = drafter;
    this.#tokens = [...prompt, ...committed];
    this.#promptLength = prompt.length;
    this.#temperature = temperature;
    this.#seed = seed;
    this.#choice = choice;
  }

  /** @returns {Promise<{token: number, confidence: number} | null>} */
  async propose() {
    const tokens = [...this.#tokens];
    const position = tokens.length - this.#promptLength;
    if (this.#closed || (position > 0 && this.#drafter.endsAt(tokens.at(-1)))) return null;
    const greedy = this.#temperature === 0;
    const found = await this.#drafter.candidates(tokens, greedy ? 1 : CANDIDATES);
    if (found === null || this.#closed) return null;
    const picked = greedy ? found[0] : this.#pick(found, position);
    this.#tokens.push(picked.token);
    // wllama's softmax overflows for logits above 88: then there is no telling, and the token is the likeliest one.
    return { token: picked.token, confidence: Number.isFinite(picked.p) ? picked.p : 1 };
  }

  /** The one sampling rule: argmax of log p / T + g. */
  #pick(candidates, position) {
    let best = candidates[0];
    let highest = -Infinity;
    for (const candidate of candidates) {
      const g = noise(this.#seed, position, this.#choice, candidate.token);
      const score = Math.log(candidate.p) / this.#temperature + g;
      if (score > highest) [best, highest] = [candidate, score];
    }
    return best;
  }

  rollback(length) {
    this.#tokens.length = Math.min(this.#tokens.length, this.#promptLength + length);
  }

  feed(tokens) {
    for (const token of tokens) this.#tokens.push(token);
  }

  close() {
    this.#closed = true;
  }
}
