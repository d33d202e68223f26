/**
 * A conversation: asks by one of four ways (drafting ahead, a stream without drafts, plain HTTP, the tab alone), keeps
 * the history that the next question needs, and puts figures under each answer. `hold` and `restore` carry it, with the
 * answer under way, over a reload.
 */

import { AnswerView } from "./answer.js";
import { askCloud } from "./cloud.js";
import { InsistentDrafter } from "./drafters/insistent.js";
import { NgramDrafter } from "./drafters/ngram.js";
import { NoDrafter } from "./drafters/none.js";
import { acceptanceRate, Figures } from "./figures.js";
import { comparisonView, figuresView, stepsPerToken } from "./figures_view.js";
import { LocalAnswer } from "./local.js";
import { make } from "./make.js";
import { Redaction } from "./redaction.js";
import { HybridStream } from "./runtime.js";
import { Trace, watching } from "./trace.js";

/** Whose answer it is, where it isn't the target's own. */
const TITLES = { local: "This tab alone, unverified", draft_only: "Drafts that the cloud found plausible, not its own answer" };

/** @typedef {{drafter: string, policy: string, temperature: number, maxTokens: number, model: string, privacy: string}} Settings */

export class Chat {
  #parts;
  /** Finished turns: {question, content, runs, settings, reason}. */
  #history = [];
  #running = null;
  #redaction = new Redaction();

  /**
   * @param {{turns: HTMLElement, connection: object, shelves: object, disclosure: object, key: () => string,
   *   settings: () => Settings, onTrace: (trace: Trace) => void, announce: (text: string) => void,
   *   notify: () => void}} parts
   */
  constructor(parts) {
    this.#parts = parts;
  }

  get busy() {
    return this.#running !== null;
  }

  get empty() {
    return this.#parts.turns.childElementCount === 0;
  }

  stop() {
    this.#running?.stop();
  }

  ask(question) {
    this.#showQuestion(question);
    this.#answer(this.#prepare(question, this.#history.length));
  }

  /** What `restore` needs, as JSON can hold it. */
  hold() {
    const running = this.#running;
    const held = running?.stream?.hold?.() ?? null;
    const { question, settings, seed, turn } = running?.asked ?? {};
    return {
      turns: this.#history.filter(Boolean),
      kept: this.#redaction.kept,
      running: held && { asked: { question, settings, seed, turn }, held, runs: running.view.runs },
    };
  }

  restore({ turns, kept, running }) {
    this.#redaction = new Redaction(kept);
    turns.forEach((turn, index) => {
      this.#showQuestion(turn.question);
      this.#history[index] = turn;
      const asked = { ...turn, turn: index };
      const view = this.#view(asked);
      view.committed(turn.runs.map(([text, origin]) => ({ text, origin })));
      view.ended({ reason: turn.reason });
    });
    if (running === null) return;
    const asked = { ...running.asked, messages: this.#messages(running.asked.question, running.asked) };
    this.#showQuestion(asked.question);
    this.#answer(asked, running);
  }

  #showQuestion(question) {
    this.#parts.turns.append(make("p", { class: "asked", dir: "auto" }, question));
  }

  /** `question` as the turn behind the first `turn` ones of the history. */
  #prepare(question, turn) {
    const asked = { question, turn, settings: this.#parts.settings(), seed: drawSeed() };
    return { ...asked, messages: this.#messages(question, asked) };
  }

  #view(asked) {
    const view = new AnswerView({
      title: TITLES[asked.settings.privacy] ?? asked.settings.model,
      detail: describe(asked.settings, this.#parts.shelves),
      announce: asked.messages ? this.#parts.announce : () => {}, // what was read before isn't read again
      onEnded: (ended, outcome) => this.#ended(asked, ended, outcome),
    });
    this.#parts.turns.append(view.element);
    return view;
  }

  #answer(asked, before = null) {
    const view = this.#view(asked);
    if (before !== null) view.committed(before.runs.map(([text, origin]) => ({ text, origin })));
    const kept = asked.settings.privacy === "redacted" ? this.#redaction.kept : [];
    asked.record = this.#parts.disclosure.begin({ question: asked.question, mode: asked.settings.privacy, kept });
    const shown = asked.settings.privacy === "redacted" ? restoring(view, this.#redaction.restorer()) : view;
    this.#running = { asked, view, stop: () => {} };
    if (asked.settings.drafter === "cloud" && !needsModel(asked.settings.privacy)) this.#askCloud(asked, shown);
    else this.#askStream(asked, shown, before?.held ?? null);
    this.#parts.notify();
  }

  async #askStream(asked, view, held) {
    const { connection, shelves, onTrace } = this.#parts;
    const { settings, messages, seed } = asked;
    const drafter = drafterFor(settings, shelves);
    const draftOnly = settings.privacy === "draft_only";
    const context = draftOnly ? await drafter.encode(messages) : null;
    const request = {
      model: settings.model,
      messages: draftOnly ? [] : messages,
      privacy: draftOnly ? "draft_only" : "full", // redacted here first, if at all
      sampling: { temperature: settings.temperature, seed },
      max_tokens: settings.maxTokens,
      policy: settings.policy,
    };
    const trace = new Trace({ startedAt: performance.now(), tripMs: () => connection.roundTripMs ?? 0 });
    const watch = watching(trace, asked.record);
    const local = settings.privacy === "local";
    const stream = local
      ? new LocalAnswer({ drafter, request, view })
      : new HybridStream({ connection, drafter, request, view, watch, held, context });
    Object.assign(asked, { stream: local ? null : stream, figures: stream.figures });
    Object.assign(this.#running, { stream, stop: () => stream.cancel() });
    if (!local) onTrace(trace);
    stream.start();
  }

  async #askCloud(asked, view) {
    const stopper = new AbortController();
    this.#running.stop = () => stopper.abort();
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
      if (up > 0) asked.record.sent({ frame: { type: "http", messages }, bytes: up });
    };
    let reason = "stop";
    for await (const part of askCloud({ key: this.#parts.key(), body, signal, onBytes })) {
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
    if (this.#running?.view === view) this.#running = null;
    if (asked.figures?.tokens) {
      const alpha = asked.stream ? acceptanceRate(asked.stream.session.stats) : null;
      const usage = outcome.usage ?? null;
      view.element.append(figuresView({ figures: asked.figures, alpha, usage }));
      asked.steps = stepsPerToken(usage);
    }
    if (outcome.reason !== "error" && view.content !== "") {
      const { question, settings } = asked;
      const { content, runs } = view;
      this.#history[asked.turn] = { question, content, runs, settings, reason: outcome.reason };
    }
    view.element.append(this.#actions(asked, view, outcome));
    this.#parts.notify();
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
    if (asked.stream && whole && asked.settings.privacy === "full") add("Compare with cloud only", (button) => this.#compare(asked, view, button));
    return actions;
  }

  #askAgain(asked, view) {
    if (this.busy) return;
    // What came after it was an answer to something that is about to change.
    while (view.element.nextSibling) view.element.nextSibling.remove();
    view.element.remove();
    this.#history.length = Math.min(this.#history.length, asked.turn);
    this.#answer(this.#prepare(asked.question, asked.turn));
  }

  /** The same question and seed over HTTP: the text must come out the same, only later. */
  async #compare(asked, view, button) {
    if (this.busy) return;
    button.disabled = true;
    button.textContent = "Asking the cloud alone …";
    const stopper = new AbortController();
    this.#running = { asked, view, stop: () => stopper.abort() };
    this.#parts.notify();
    const cloud = { settings: asked.settings, messages: asked.messages, seed: asked.seed, record: asked.record };
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
    this.#running = null;
    this.#parts.notify();
  }

  #messages(question, { turn, settings }) {
    const before = this.#history.slice(0, turn).filter(Boolean);
    const past = before.flatMap(({ question: asked, content }) => [
      { role: "user", content: asked },
      { role: "assistant", content },
    ]);
    const messages = [...past, { role: "user", content: question }];
    if (settings.privacy !== "redacted") return messages;
    return messages.map(({ role, content }) => ({ role, content: this.#redaction.redact(content) }));
  }
}

/** The drafter that the settings name; n-grams until a model is there, which some privacy modes can't do without. */
export function drafterFor({ drafter, privacy, policy }, shelves) {
  if (needsModel(privacy)) return shelves.model.drafter;
  if (drafter === "none" || drafter === "cloud") return new NoDrafter();
  const chosen = shelves[drafter]?.drafter ?? new NgramDrafter();
  return policy === "sync" ? new InsistentDrafter(chosen) : chosen;
}

/** Whether only a model in this tab can answer in this privacy mode. */
export function needsModel(privacy) {
  return privacy === "local" || privacy === "draft_only";
}

/** A view that puts redacted data back before it shows a piece. */
function restoring(view, restorer) {
  return {
    pending: (texts) => view.pending(texts),
    away: () => view.away(),
    back: () => view.back(),
    committed: (pieces, change) => view.committed(pieces.flatMap((piece) => restorer.push(piece)), change),
    ended: (outcome) => {
      view.committed(restorer.flush());
      view.ended({ ...outcome, keptBytes: null }); // bytes of the text with signs say nothing about this one
    },
  };
}

/** Below 2^53, as numbers here need it. Known on this side, so that another gateway could go on with the stream. */
export function drawSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high & 0x1fffff) * 2 ** 32 + low;
}

function describe({ drafter, policy, temperature, privacy }, shelves) {
  if (privacy === "local") return `nothing leaves this device, temperature ${temperature}`;
  if (privacy === "draft_only") return `no token of the question leaves, temperature ${temperature}`;
  const loaded = shelves[drafter]?.drafter ?? null;
  const model = loaded === null ? "n-gram drafts until the model is here" : `drafts by ${loaded.name}`;
  const ways = {
    ngram: `n-gram drafts, ${policy}`,
    model: `${model}, ${policy}`,
    webllm: `${model} on the GPU, ${policy}`,
    none: "WebSocket, no drafts",
    cloud: "cloud only, HTTP",
  };
  return `${ways[drafter]}, temperature ${temperature}${privacy === "redacted" ? ", redacted" : ""}`;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying isn’t allowed here";
  }
}
