/**
 * A language model on the GPU as drafter: MLC's WebLLM over WebGPU, where the browser has it and the gateway a compiled
 * model (PACELINE_WEBLLM_DIR). The same seam as model.js, and the same continuation.
 *
 * WebLLM's one token-level call computes tokens and samples; the logits behind them are read on their way to its sampler,
 * and what it samples is not used. It can't take tokens back out of its cache, so a rollback computes all anew: cheap on
 * a GPU, in batches.
 */

import { agreement } from "../protocol/ledger.js";
import { ModelContinuation } from "./model.js";

const CONTEXT = 2048;
/** Its sampler's answer is thrown away: let it be quick, and let no penalty of its own touch what it is asked for. */
const PLAIN = { temperature: 0, top_p: 1, repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0 };

/** Whether this browser gives us a GPU. */
export async function hasGpu(gpu = globalThis.navigator?.gpu) {
  return gpu !== undefined && (await gpu.requestAdapter()) !== null;
}

export class WebLlmDrafter {
  #engine;
  #reader;
  #ends;
  #cached = [];
  #queue = Promise.resolve();

  /**
   * Throws what WebLLM throws.
   * @param {{CreateMLCEngine: Function, about: object, onProgress: (share: number) => void}} options `about`: what the
   *   gateway says of the model
   */
  static async load({ CreateMLCEngine, about, onProgress }) {
    const reader = new LogitsReader();
    const at = (address) => new URL(address, location.href).href;
    const overrides = { ...PLAIN, context_window_size: CONTEXT };
    const record = { model_id: about.id, model: at(about.url), model_lib: at(about.library), overrides };
    const engine = await CreateMLCEngine(about.id, {
      appConfig: { model_list: [record] },
      logitProcessorRegistry: new Map([[about.id, reader]]),
      initProgressCallback: ({ progress }) => onProgress(progress),
    });
    return new WebLlmDrafter(engine, reader, about);
  }

  constructor(engine, reader, { id, ends }) {
    this.#engine = engine;
    this.#reader = reader;
    this.#ends = new Set(ends);
    this.name = id;
  }

  begin(prompt, { committed = [], sampling = {} } = {}) {
    return new ModelContinuation(this, prompt, committed, sampling);
  }

  endsAt(token) {
    return this.#ends.has(token);
  }

  /** Known of ends only: WebLLM keeps its tokenizer to itself. */
  textOf(token) {
    return this.endsAt(token) ? "" : null;
  }

  close() {
    return this.#engine.unload();
  }

  /** As ModelDrafter's: the most likely tokens behind `tokens`, most likely first: [{token, p}]. */
  candidates(tokens, count) {
    const task = async () => {
      if (tokens.length === 0 || tokens.length >= CONTEXT) return null;
      await this.#bringTo(tokens);
      return this.#reader.likeliest(count);
    };
    const done = this.#queue.then(task);
    this.#queue = done.catch(() => {});
    return done;
  }

  async #bringTo(tokens) {
    const kept = agreement(this.#cached, tokens);
    if (kept === tokens.length && kept === this.#cached.length) return; // its logits are those read last
    const goesOn = kept === this.#cached.length;
    if (!goesOn) await this.#engine.resetChat();
    const fresh = tokens.slice(goesOn ? kept : 0);
    this.#cached = []; // until it is known to have come that far
    await this.#engine.forwardTokensAndSample(fresh, fresh.length > 1);
    this.#cached = tokens;
  }
}

/** WebLLM's `LogitProcessor`: sees the logits of the last token computed, and changes nothing. */
class LogitsReader {
  #logits = new Float32Array();

  processLogits(logits) {
    this.#logits = logits.slice(); // its memory is WebLLM's again afterwards
    return logits;
  }

  processSampledToken() {}

  resetState() {}

  likeliest(count) {
    const logits = this.#logits;
    const best = [];
    let highest = -Infinity;
    for (let token = 0; token < logits.length; token++) {
      const logit = logits[token];
      if (logit > highest) highest = logit;
      if (best.length === count && logit <= best.at(-1).logit) continue;
      let place = best.length;
      while (place > 0 && best[place - 1].logit < logit) place -= 1;
      best.splice(place, 0, { token, logit });
      if (best.length > count) best.pop();
    }
    let sum = 0;
    for (const logit of logits) sum += Math.exp(logit - highest);
    return best.map(({ token, logit }) => ({ token, p: Math.exp(logit - highest) / sum }));
  }
}
