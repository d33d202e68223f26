/**
 * One question, three ways, one seed: the cloud alone, in turns (the device waits for each verdict), and hybrid. They
 * run one after the other, so that none slows another; what was measured can then be played side by side.
 */

import { drafterFor, drawSeed } from "./chat.js";
import { NoDrafter } from "./drafters/none.js";
import { acceptanceRate } from "./figures.js";
import { milliseconds, ratio } from "./figures_view.js";
import { make } from "./make.js";
import { HybridStream } from "./runtime.js";
import { saveCard } from "./race_card.js";
import { visible } from "./text.js";
import { Trace, watching } from "./trace.js";

const RUNNERS = [
  { id: "cloud", name: "Cloud only", detail: "one step of the target a token", policy: "eager", drafts: false },
  { id: "sync", name: "In turns", detail: "the device drafts, then waits for the verdict", policy: "sync", drafts: true },
  { id: "hybrid", name: "Hybrid", detail: "nobody waits", policy: "eager", drafts: true },
];

export class Race {
  #parts;
  #lanes = [];
  #running = null;
  #stopped = false;

  /**
   * @param {{element: HTMLElement, connection: object, shelves: object, disclosure: object, network: object,
   *   settings: () => object, onTrace: (trace: object) => void, announce: (text: string) => void,
   *   notify: () => void}} parts
   */
  constructor(parts) {
    this.#parts = parts;
  }

  get busy() {
    return this.#running !== null;
  }

  stop() {
    this.#stopped = true;
    this.#running?.cancel?.();
  }

  async run(question) {
    const settings = { ...this.#parts.settings(), privacy: "full" };
    const seed = drawSeed();
    this.#stopped = false;
    this.#lanes = RUNNERS.map((runner) => new Lane(runner));
    const grid = make("div", { class: "lanes-grid" });
    grid.append(...this.#lanes.map(({ element }) => element));
    this.#parts.element.replaceChildren(make("p", { class: "asked", dir: "auto" }, question), grid);
    this.#running = {};
    this.#parts.notify();
    const record = this.#parts.disclosure.begin({ question: `Race: ${question}`, mode: "full" });
    for (const lane of this.#lanes) {
      if (!this.#stopped) await this.#runOne(lane, { question, settings, seed, record });
    }
    this.#running = null;
    this.#conclude({ question, settings, grid });
    this.#parts.notify();
  }

  #runOne(lane, { question, settings, seed, record }) {
    const { connection, shelves, onTrace } = this.#parts;
    const trace = new Trace({ startedAt: performance.now(), tripMs: () => connection.roundTripMs ?? 0 });
    onTrace(trace);
    return new Promise((resolve) => {
      const stream = new HybridStream({
        connection,
        drafter: lane.runner.drafts ? drafterFor(drafting(settings, lane.runner.policy), shelves) : new NoDrafter(),
        request: {
          model: settings.model,
          messages: [{ role: "user", content: question }],
          sampling: { temperature: settings.temperature, seed },
          max_tokens: settings.maxTokens,
          policy: lane.runner.policy,
        },
        view: lane.view(resolve),
        watch: watching(trace, record),
      });
      this.#running = stream;
      lane.begin(stream);
      stream.start();
    });
  }

  #conclude({ question, settings, grid }) {
    const failed = this.#lanes.find(({ outcome }) => outcome?.reason === "error");
    const whole = this.#lanes.every(({ outcome }) => ["stop", "length"].includes(outcome?.reason));
    const note = make("p", { class: "verdict", role: "status" });
    this.#parts.element.append(note);
    if (!whole) {
      note.textContent = failed?.outcome.message ?? "Stopped before all three had finished.";
      return;
    }
    const same = this.#lanes.every(({ text }) => text === this.#lanes[0].text);
    note.dataset.same = String(same);
    note.textContent = same
      ? "The same text three times, character for character. Only the time and the target’s steps differ."
      : "The texts differ: a tie between two tokens went different ways in steps of different size.";
    grid.dataset.done = "";
    this.#parts.announce(note.textContent);
    const fastest = this.#lanes.reduce((best, lane) => (lane.figures.itlMs < best.figures.itlMs ? lane : best));
    fastest.element.dataset.fastest = "";
    const actions = make("div", { class: "actions" });
    const replay = make("button", { type: "button" }, "Play side by side");
    replay.addEventListener("click", () => this.#lanes.forEach((lane) => lane.replay()));
    const share = make("button", { type: "button" }, "Save as PNG");
    share.addEventListener("click", () =>
      saveCard({
        question,
        same,
        network: this.#parts.network,
        temperature: settings.temperature,
        model: settings.model,
        drafter: drafterFor(drafting(settings, "eager"), this.#parts.shelves).name,
        runs: this.#lanes.map((lane) => lane.summary()),
      }),
    );
    actions.append(replay, share);
    this.#parts.element.append(actions);
    actions.scrollIntoView({ block: "nearest" });
    this.#lanes.forEach((lane) => lane.replay());
  }
}

/** A race needs drafts, whatever the conversation uses. */
function drafting(settings, policy) {
  return { ...settings, policy, drafter: ["model", "webllm"].includes(settings.drafter) ? settings.drafter : "ngram" };
}

/** One runner: its clock, its text, its figures. */
class Lane {
  #clock;
  #text;
  #facts;
  #stream = null;
  #startedAt = 0;
  #tick = null;
  /** What arrived when, for the replay: [ms since the start, pieces]. */
  #arrivals = [];
  outcome = null;
  text = "";

  constructor(runner) {
    this.runner = runner;
    this.element = make("article", { class: "lane", "data-runner": runner.id, "aria-label": runner.name });
    const head = make("header");
    head.append(make("h3", {}, runner.name), make("span", { class: "detail" }, runner.detail));
    this.#clock = make("p", { class: "clock", "aria-hidden": "true" }, "0.00");
    this.#text = make("div", {
      class: "lane-text",
      dir: "auto",
      tabindex: "0",
      role: "region",
      "aria-label": `Text, ${runner.name}`,
    });
    this.#facts = make("dl", { class: "facts" });
    this.element.append(head, this.#clock, this.#text, this.#facts);
  }

  get figures() {
    return this.#stream.figures;
  }

  begin(stream) {
    this.#stream = stream;
    this.#startedAt = performance.now();
    this.element.dataset.running = "";
    this.element.scrollIntoView({ block: "nearest" });
    const show = () => {
      this.#showClock(performance.now() - this.#startedAt);
      this.#tick = requestAnimationFrame(show);
    };
    show();
  }

  view(done) {
    return {
      pending() {},
      away() {},
      back() {},
      committed: (pieces) => {
        this.#arrivals.push([performance.now() - this.#startedAt, pieces]);
        this.text += pieces.map(({ text }) => text).join("");
        this.#append(pieces);
      },
      ended: (outcome) => {
        cancelAnimationFrame(this.#tick);
        this.outcome = outcome;
        delete this.element.dataset.running;
        if (outcome.usage) this.#showFacts();
        done();
      },
    };
  }

  summary() {
    const { figures, runner, outcome } = this;
    const [itl, total, steps] = [figures.itlMs, this.#arrivals.at(-1)?.[0] ?? 0, outcome.usage.steps];
    return { id: runner.id, name: runner.name, itl, total, steps, tokens: figures.tokens };
  }

  /** Show once more what was measured, from the first token on, at its own pace. */
  replay() {
    cancelAnimationFrame(this.#tick);
    this.#text.replaceChildren();
    const first = this.#arrivals[0]?.[0] ?? 0;
    const last = this.#arrivals.at(-1)?.[0] ?? 0;
    const began = performance.now();
    let next = 0;
    const show = () => {
      const now = performance.now() - began + first;
      while (next < this.#arrivals.length && this.#arrivals[next][0] <= now) this.#append(this.#arrivals[next++][1]);
      this.#showClock(Math.min(now, last) - first);
      if (next < this.#arrivals.length) this.#tick = requestAnimationFrame(show);
    };
    show();
  }

  #append(pieces) {
    for (const { text, origin } of pieces) {
      const word = text.trimStart();
      this.#text.append(visible(text.slice(0, text.length - word.length)));
      if (word !== "") this.#text.append(make("span", { "data-origin": origin }, visible(word)));
    }
    this.#text.scrollTop = this.#text.scrollHeight;
  }

  #showClock(ms) {
    this.#clock.textContent = `${(ms / 1000).toFixed(2)} s`;
  }

  #showFacts() {
    const { steps, completion } = this.outcome.usage;
    const facts = {
      "per token (ITL)": milliseconds(this.figures.itlMs).join(" "),
      "target steps": `${steps} for ${completion} tokens`,
      "acceptance α": ratio(this.runner.drafts ? acceptanceRate(this.#stream.session.stats) : null)[0],
    };
    for (const [name, value] of Object.entries(facts)) {
      const cell = make("div");
      cell.append(make("dt", {}, name), make("dd", {}, value));
      this.#facts.append(cell);
    }
  }
}
