/**
 * A conversation: asks by one of three ways (hybrid, a stream without drafts, plain HTTP), keeps the history that the
 * next question needs, and puts figures under each answer.
 */

import { AnswerView, make } from "./answer.js";
import { askCloud } from "./cloud.js";
import { NgramDrafter } from "./drafters/ngram.js";
import { NoDrafter } from "./drafters/none.js";
import { acceptanceRate, Figures } from "./figures.js";
import { comparisonView, figuresView, stepsPerToken } from "./figures_view.js";
import { HybridStream } from "./runtime.js";

/** @typedef {{drafter: string, policy: string, temperature: number, maxTokens: number, model: string}} Settings */

const DRAFTERS = { ngram: NgramDrafter, none: NoDrafter };

export class Chat {
  #turns;
  #connection;
  #key;
  #settings;
  #announce;
  #notify;
  /** Finished turns: {question, content}. */
  #history = [];
  #stop = null;
  bytesUp = 0;
  bytesDown = 0;

  /**
   * @param {{turns: HTMLElement, connection: object, key: () => string, settings: () => Settings,
   *   announce: (text: string) => void, notify: () => void}} options
   */
  constructor({ turns, connection, key, settings, announce, notify }) {
    this.#turns = turns;
    this.#connection = connection;
    this.#key = key;
    this.#settings = settings;
    this.#announce = announce;
    this.#notify = notify;
  }

  get busy() {
    return this.#stop !== null;
  }

  get empty() {
    return this.#turns.childElementCount === 0;
  }

  stop() {
    this.#stop?.();
  }

  ask(question) {
    this.#turns.append(make("p", { class: "asked", dir: "auto" }, question));
    this.#answer(question, this.#history.length);
  }

  /** Answer `question` as the turn behind the first `turn` ones of the history. */
  #answer(question, turn) {
    const settings = this.#settings();
    const asked = { question, settings, turn, seed: drawSeed(), messages: this.#messages(question, turn) };
    const view = new AnswerView({
      title: settings.model,
      detail: describe(settings),
      announce: this.#announce,
      onEnded: (ended, outcome) => this.#ended(asked, ended, outcome),
    });
    this.#turns.append(view.element);
    if (settings.drafter === "cloud") this.#askCloud(asked, view);
    else this.#askHybrid(asked, view);
    this.#notify();
  }

  #askHybrid(asked, view) {
    const { settings, messages, seed } = asked;
    const stream = new HybridStream({
      connection: this.#connection,
      drafter: new DRAFTERS[settings.drafter](),
      request: {
        model: settings.model,
        messages,
        sampling: { temperature: settings.temperature, seed },
        max_tokens: settings.maxTokens,
        policy: settings.policy,
      },
      view,
    });
    asked.stream = stream;
    asked.figures = stream.figures;
    this.#stop = () => stream.cancel();
    stream.start();
  }

  async #askCloud(asked, view) {
    const stopper = new AbortController();
    this.#stop = () => stopper.abort();
    let reason = "error";
    let message = "";
    try {
      reason = await this.#fetch(asked, stopper.signal, (text) => view.committed([{ text, origin: "cloud" }]));
    } catch (error) {
      if (error.name === "AbortError") reason = "cancelled";
      else message = error instanceof TypeError ? "The gateway can’t be reached." : error.message;
    }
    view.ended({ reason, message, usage: null });
  }

  /** Streams over HTTP into `show`; fills `asked.figures`; returns the finish reason. */
  async #fetch(asked, signal, show) {
    const figures = new Figures(performance.now());
    asked.figures = figures;
    const { settings, messages, seed } = asked;
    const body = {
      model: settings.model,
      messages,
      temperature: settings.temperature,
      seed,
      max_tokens: settings.maxTokens,
    };
    const onBytes = (up, down) => {
      figures.bytesUp += up;
      figures.bytesDown += down;
    };
    let reason = "stop";
    for await (const part of askCloud({ key: this.#key(), body, signal, onBytes })) {
      if (part.usage) {
        reason = part.reason ?? reason;
        figures.tokens = part.usage.completion_tokens; // a chunk may hold several tokens: the gateway's count is right
      } else {
        figures.arrived(1, performance.now());
        show(part.text);
      }
    }
    return reason;
  }

  #ended(asked, view, outcome) {
    this.#stop = null;
    this.bytesUp += asked.figures?.bytesUp ?? 0;
    this.bytesDown += asked.figures?.bytesDown ?? 0;
    if (asked.figures?.tokens) {
      const alpha = asked.stream ? acceptanceRate(asked.stream.session.stats) : null;
      const usage = outcome.usage ?? null;
      view.element.append(figuresView({ figures: asked.figures, alpha, usage }));
      asked.steps = stepsPerToken(usage);
    }
    if (outcome.reason !== "error" && view.content !== "") {
      this.#history[asked.turn] = { question: asked.question, content: view.content };
    }
    view.element.append(this.#actions(asked, view, outcome));
    this.#notify();
  }

  #actions(asked, view, outcome) {
    const actions = make("div", { class: "actions" });
    const add = (label, act) => {
      const button = make("button", { type: "button" }, label);
      button.addEventListener("click", () => act(button));
      actions.append(button);
    };
    if (view.content !== "") add("Copy", (button) => copy(view.content, button));
    add("Ask again", () => this.#askAgain(asked, view));
    const whole = outcome.reason === "stop" || outcome.reason === "length";
    if (asked.stream && whole) add("Compare with cloud only", (button) => this.#compare(asked, view, button));
    return actions;
  }

  #askAgain(asked, view) {
    if (this.busy) return;
    // What came after it was an answer to something that is about to change.
    while (view.element.nextSibling) view.element.nextSibling.remove();
    view.element.remove();
    this.#history.length = Math.min(this.#history.length, asked.turn);
    this.#answer(asked.question, asked.turn);
  }

  /** The same question and seed over HTTP: the text must come out the same, only later. */
  async #compare(asked, view, button) {
    if (this.busy) return;
    button.disabled = true;
    button.textContent = "Asking the cloud alone …";
    const stopper = new AbortController();
    this.#stop = () => stopper.abort();
    this.#notify();
    const cloud = { settings: asked.settings, messages: asked.messages, seed: asked.seed };
    let content = "";
    try {
      await this.#fetch(cloud, stopper.signal, (text) => (content += text));
      const hybrid = { content: view.content, figures: asked.figures, steps: asked.steps };
      view.element.append(comparisonView(hybrid, { content, figures: cloud.figures }));
      button.remove();
    } catch (error) {
      button.disabled = false;
      button.textContent =
        error.name === "AbortError" ? "Compare with cloud only" : `Failed: ${error.message} Try again`;
    }
    this.bytesUp += cloud.figures?.bytesUp ?? 0;
    this.bytesDown += cloud.figures?.bytesDown ?? 0;
    this.#stop = null;
    this.#notify();
  }

  #messages(question, turn) {
    const before = this.#history.slice(0, turn).filter(Boolean);
    const past = before.flatMap(({ question: asked, content }) => [
      { role: "user", content: asked },
      { role: "assistant", content },
    ]);
    return [...past, { role: "user", content: question }];
  }
}

/** Below 2^53, as numbers here need it. Known on this side, so that another gateway could go on with the stream. */
function drawSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high & 0x1fffff) * 2 ** 32 + low;
}

function describe({ drafter, policy, temperature }) {
  const way = { ngram: `n-gram drafts, ${policy}`, none: "WebSocket, no drafts", cloud: "cloud only, HTTP" }[drafter];
  return `${way}, temperature ${temperature}`;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying isn’t allowed here";
  }
}
