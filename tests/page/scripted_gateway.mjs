/**
 * A gateway without a network: it says one fixed output, steps when told to, and can lose its sockets or its memory. It
 * reads and answers the real frames, and takes the browser's place as `environment` of a Connection: clock, timers and
 * sockets.
 */

import { decodeEdge } from "../../static/js/protocol/frames.js";
import { agreement } from "../../static/js/protocol/ledger.js";
import { pad } from "../../static/js/protocol/padding.js";

export class ScriptedGateway {
  /** @param {{output: number[], prompt?: number[], control?: number[]}} script `control`: tokens without text */
  constructor({ output, prompt = [100, 101], control = [] }) {
    this.control = control;
    this.output = output;
    this.prompt = prompt;
    this.received = [];
    /** As they came: in their envelopes. */
    this.messages = [];
    /** Whether it knows envelopes. */
    this.padding = true;
    this.timers = [];
    this.intervals = [];
    this.clock = 0;
    this.socketCount = 0;
    this.streams = new Map();
    this.welcoming = true;
  }

  environment() {
    return {
      now: () => this.clock,
      random: () => 0,
      setTimeout: (task, ms) => this.timers.push({ task, ms }),
      clearTimeout: (id) => delete this.timers[id - 1],
      setInterval: (task) => this.intervals.push(task),
      clearInterval: (id) => delete this.intervals[id - 1],
      socket: () => this.#accept(),
    };
  }

  #accept() {
    const socket = { send: (text) => this.#hear(socket, text), close: () => {} };
    this.socketCount += 1;
    this.socket = socket;
    queueMicrotask(() => socket.onopen());
    return socket;
  }

  say(socket, frame) {
    const data = JSON.stringify(frame);
    if (socket === this.socket) socket.onmessage({ data: socket.padding ? pad(data, socket.padding) : data });
  }

  #hear(socket, text) {
    this.messages.push(text);
    const [type, size, tickMs] = JSON.parse(text);
    if (type === "pad") socket.padding = { size, tickMs };
    if (type === "pad" && !this.padding) return this.say(socket, ["error", null, "unknown_frame"]);
    const frame = decodeEdge(text);
    if (frame !== null) this.#receive(socket, frame);
  }

  #receive(socket, frame) {
    this.received.push(frame);
    this.#answers[frame.type]?.(socket, frame);
  }

  #answers = {
    hello: (socket) => this.welcoming && this.say(socket, ["welcome", 1, [{ id: "m" }], { draft_tokens: 8 }]),
    ping: (socket, { nonce }) => this.say(socket, ["pong", nonce]),
    open: (socket, { stream, committed, sampling }) => {
      this.streams.set("token", {
        id: stream,
        socket,
        head: committed.length,
        epoch: -1,
        pending: [],
        seed: sampling.seed,
      });
      this.#opened(this.streams.get("token"));
    },
    resume: (socket, { stream, token, held }) => {
      const state = this.streams.get(token);
      if (state === undefined) return this.say(socket, ["error", stream, "unknown_resume", "", true]);
      Object.assign(state, { id: stream, socket });
      this.#opened(state);
      if (state.head > held) this.say(socket, ["commit", stream, held, this.output.slice(held, state.head)]);
    },
    draft: (_, { stream, epoch, start, tokens }) => {
      const state = this.streams.get("token");
      if (state.id !== stream || epoch < state.epoch) return;
      if (epoch > state.epoch) Object.assign(state, { epoch, pending: [] });
      if (start === state.head + state.pending.length) state.pending.push(...tokens);
    },
  };

  #opened({ socket, id, seed, epoch, head }) {
    const prompt = this.prompt.map((token) => (this.control.includes(token) ? "" : `p${token} `));
    this.say(socket, ["opened", id, "token", this.prompt.length, seed, 0, epoch + 1, head, 4, this.prompt, prompt]);
  }

  /** One step of the target: the drafts that agree, and one token more. Says the end when there is no more. */
  step() {
    const state = this.streams.get("token");
    const rest = this.output.slice(state.head);
    const agreed = agreement(state.pending, rest);
    const tokens = rest.slice(0, agreed + 1);
    const start = state.head;
    state.head += tokens.length;
    state.pending = agreed < tokens.length ? [] : state.pending.slice(tokens.length);
    const texts = tokens.map((token) => `t${token} `);
    const cuts = texts.map((text) => text.length);
    this.say(state.socket, [
      "commit",
      state.id,
      start,
      tokens,
      Math.min(agreed, tokens.length),
      0,
      0,
      texts.join(""),
      [],
      cuts,
    ]);
    if (state.head < this.output.length) return true;
    this.say(state.socket, ["finish", state.id, state.head, "stop", null, { completion: state.head, steps: 1 }]);
    return false;
  }

  /** The network is gone: nobody is told anything but that the socket closed. */
  drop(code = 1006) {
    const socket = this.socket;
    this.socket = null;
    socket.onclose({ code, reason: "" });
  }

  /** Let so many milliseconds pass, and what is done again and again come round. */
  async pass(ms) {
    this.clock += ms;
    for (const task of [...this.intervals]) task?.();
    await settled();
  }

  /** Run the timer that was set last. */
  async fire() {
    this.timers.pop().task();
    await settled();
  }

  of(type) {
    return this.received.filter((frame) => frame.type === type);
  }
}

/** All that can happen without the network having moved has happened. */
export function settled() {
  return new Promise((resolve) => setImmediate(resolve));
}
