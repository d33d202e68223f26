/**
 * One WebSocket for many streams: connects, says hello, and after a loss connects again and lets every stream resume.
 *
 *     idle ──► connecting ──► open ──► waiting (backoff) ──► connecting …
 *                 │            └──► idle       closed on purpose, or for idleness with no stream
 *                 └──► refused                 a key or version that won't do: trying again can't help
 *
 * A ticket that is refused (4401) only means trying again with a new one: whether the key is good, the ticket's sale
 * tells.
 *
 * What a stream needs to be is an object with `connected()`, `disconnected()`, `receive(frame, bytes)`, `sent(frame,
 * bytes)` once a frame of its own has left, and `failed(message)`.
 *
 * With `padding` (protocol/padding.js) frames leave in envelopes, one a tick.
 */

import { backoff } from "./backoff.js";
import { Refused } from "./credentials.js";
import { Outbox } from "./outbox.js";
import { CLOSE, ProtocolError } from "./protocol/errors.js";
import { decode, encode, SUBPROTOCOL, VERSION } from "./protocol/frames.js";
import { Cadence, pad } from "./protocol/padding.js";

const PING_MS = 5000;
/** A browser notices a dead network late or never; silence for this long while streams run counts as a loss. */
const SILENCE_MS = 12000;
/** The same, once there is reason to doubt the network. */
const DOUBT_MS = 3000;
/** The round-trip time shown is the least of this many: what delays a pong in the page is not the network. */
const TRIPS = 4;
const encoder = new TextEncoder();

export class Connection {
  #url;
  #ticket;
  #environment;
  #notify;
  #socket = null;
  #streams = new Map();
  #nextStream = 0;
  #attempt = 0;
  #retry = null;
  #watch = null;
  #heardAt = 0;
  #pings = new Map();
  #nextNonce = 0;
  #trips = [];
  #waiters = [];
  #padding = null;
  /** Bytes of the largest frame that the gateway takes. */
  #most = Infinity;
  /** Of the socket, where it is padded; null: frames leave at once. */
  #outbox = null;
  #cadence = null;
  #tick = null;

  /**
   * @param {{url: string, ticket: () => Promise<string>, notify?: () => void, environment?: object}} options `ticket`
   *   buys one per connection; `notify` is called whenever something that a person can see has changed
   */
  constructor({ url, ticket, notify = () => {}, environment = browser() }) {
    this.#url = url;
    this.#ticket = ticket;
    this.#notify = notify;
    this.#environment = environment;
    this.state = "idle";
    this.welcome = null;
    this.roundTripMs = null;
    this.problem = "";
  }

  /**
   * Resolves once the gateway has welcomed us; rejects when it refuses us. While it can't be reached it keeps trying.
   */
  connect() {
    if (this.state === "open") return Promise.resolve(this.welcome);
    const done = new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
    if (this.state === "idle" || this.state === "refused") this.#connect();
    return done;
  }

  /** Start a stream: it gets its first `connected()` at once if the socket is open, else when it is. */
  attach(stream) {
    stream.id = this.#nextStream++;
    this.#streams.set(stream.id, stream);
    if (this.state === "open") stream.connected();
    else this.connect().catch(() => {});
  }

  /** A stream that resumes goes by a new id: ids are never used twice on a socket. */
  renumber(stream) {
    this.#streams.delete(stream.id);
    stream.id = this.#nextStream++;
    this.#streams.set(stream.id, stream);
  }

  detach(stream) {
    this.#streams.delete(stream.id);
  }

  /** False when there is no socket to send the frame on: resuming makes up for what was not sent. */
  send(frame) {
    if (this.state !== "open") return false;
    if (this.#outbox === null) this.#transmit(frame, encode(frame));
    else {
      this.#outbox.push(frame);
      if (this.#tick === null) this.#sendAtTick();
    }
    return true;
  }

  /**
   * How messages are padded from now on; null: not at all. A socket's padding doesn't change, so another one is opened,
   * and streams resume on it.
   */
  pad(padding) {
    if (padding === this.#padding) return;
    this.#padding = padding;
    if (this.state === "refused") this.connect().catch(() => {}); // perhaps for the padding
    if (this.state !== "open") return;
    this.#drop();
    this.hurry();
  }

  /**
   * The browser says that it is offline. A gateway on this machine may be there all the same, so it is asked; silence
   * then counts as a loss. A socket that can't even be closed any more is found out, too.
   */
  doubt() {
    if (this.state !== "open") return;
    const [socket, heardAt] = [this.#socket, this.#heardAt];
    this.#ping();
    this.#environment.setTimeout(() => {
      if (this.#socket === socket && this.#heardAt === heardAt) this.#drop();
    }, DOUBT_MS);
  }

  /** The way has changed: what was measured of it holds no more. */
  measure() {
    this.#trips = [];
    this.#pings.clear();
    if (this.state === "open") this.#ping();
  }

  /** Try now instead of after the backoff: the network is back, or a person asked. */
  hurry() {
    if (this.state !== "waiting") return;
    this.#environment.clearTimeout(this.#retry);
    this.#connect();
  }

  close() {
    this.#environment.clearTimeout(this.#retry);
    const socket = this.#socket;
    this.#forget();
    this.#enter("idle");
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Refused("The connection was closed."));
    socket?.close(1000);
  }

  async #connect() {
    this.#enter("connecting");
    let ticket;
    try {
      ticket = await this.#ticket();
    } catch (error) {
      if (error instanceof Refused && error.key) this.#refuse(error.message);
      else this.#wait(error instanceof Refused ? error.message : "The gateway can’t be reached.");
      return;
    }
    if (this.state !== "connecting") return; // closed meanwhile
    const socket = this.#environment.socket(this.#url, SUBPROTOCOL);
    this.#socket = socket;
    this.#heardAt = this.#environment.now();
    this.#watch = this.#environment.setInterval(() => this.#listen(), PING_MS);
    socket.onopen = () => socket.send(encode({ type: "hello", version: VERSION, ticket, agent: "paceline-page" }));
    socket.onmessage = (event) => this.#socket === socket && this.#receive(event.data);
    socket.onclose = (event) => this.#socket === socket && this.#lost(event.code, event.reason);
  }

  #receive(data) {
    this.#heardAt = this.#environment.now();
    let frame;
    try {
      frame = decode(data);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      return; // a newer gateway may say things that we needn't understand
    }
    if (frame === null) return;
    if (frame.type === "welcome") this.#welcomed(frame);
    else if (frame.type === "pong") this.#ponged(frame);
    else if (frame.stream === null) this.#complain(frame);
    else this.#streams.get(frame.stream)?.receive(frame, encoder.encode(data).length);
  }

  #welcomed(frame) {
    this.welcome = frame;
    this.problem = "";
    this.#attempt = 0;
    this.#most = frame.limits.frame_bytes;
    if (this.#padding !== null) {
      this.#outbox = new Outbox(frame.limits.draft_tokens);
      this.#cadence = new Cadence(this.#padding.tickMs);
    }
    this.#enter("open");
    this.#ping();
    for (const waiter of this.#waiters.splice(0)) waiter.resolve(frame);
    for (const stream of [...this.#streams.values()]) stream.connected();
  }

  #ping() {
    const nonce = this.#nextNonce++;
    this.#pings.set(nonce, this.#environment.now());
    this.send({ type: "ping", nonce });
  }

  #ponged(frame) {
    const sent = this.#pings.get(frame.nonce);
    if (sent === undefined) return;
    this.#pings.delete(frame.nonce);
    this.#trips = [...this.#trips, this.#environment.now() - sent].slice(-TRIPS);
    this.roundTripMs = Math.min(...this.#trips);
    if (this.#trips.length < TRIPS) this.#ping();
    this.#notify();
  }

  /**
   * Until the welcome, and then only while streams run: an idle socket may be closed by the gateway, and that is all
   * right.
   */
  #listen() {
    const welcomed = this.state === "open";
    if (welcomed && this.#streams.size === 0) return;
    const silent = this.#environment.now() - this.#heardAt > SILENCE_MS;
    if (silent && (!welcomed || this.#pings.size > 0)) this.#drop();
    else if (welcomed) this.#ping();
  }

  #complain(frame) {
    this.problem = frame.message || frame.code;
    if (this.#outbox !== null && frame.code === "unknown_frame")
      this.#fail("This gateway can’t pad its messages: turn padding off.");
    this.#notify();
  }

  /** One message a tick, what there is to say or nothing, for as long as the cadence runs. */
  #sendAtTick() {
    const [outbox, cadence] = [this.#outbox, this.#cadence];
    this.#tick = this.#environment.setTimeout(() => {
      const frame = outbox.take();
      this.#transmit(frame, pad(frame && encode(frame), this.#padding, this.#most));
      cadence.sent(this.#environment.now(), this.#streams.size > 0);
      if (outbox !== this.#outbox) return; // what was sent has ended the socket
      this.#tick = null;
      if (cadence.running) this.#sendAtTick();
    }, cadence.waitMs(this.#environment.now()));
  }

  #transmit(frame, text) {
    this.#socket.send(text);
    if (frame !== null) this.#streams.get(frame.stream)?.sent(frame, encoder.encode(text).length);
  }

  /** Give the socket up without waiting for the network to agree. */
  #drop() {
    const socket = this.#socket;
    this.#lost(1006, "");
    socket.close();
  }

  #fail(problem) {
    const socket = this.#socket;
    this.#forget();
    this.#refuse(problem);
    socket.close();
  }

  /** Nothing that belonged to the socket outlives it. */
  #forget() {
    this.#socket = null;
    this.#outbox = this.#cadence = null;
    this.#environment.clearTimeout(this.#tick);
    this.#tick = null;
    this.#environment.clearInterval(this.#watch);
    this.#pings.clear();
  }

  #lost(code, reason) {
    this.#forget();
    for (const stream of [...this.#streams.values()]) stream.disconnected();
    if (code === CLOSE.PROTOCOL) this.#refuse(reason || this.problem || `The gateway closed the connection (${code}).`);
    else if (code === CLOSE.IDLE && this.#streams.size === 0) this.#enter("idle");
    else this.#wait("The connection was lost.");
  }

  #wait(problem) {
    this.problem = problem;
    const delay = backoff(this.#attempt++, this.#environment.random);
    this.#retry = this.#environment.setTimeout(() => this.#connect(), delay);
    this.#enter("waiting");
  }

  #refuse(problem) {
    this.problem = problem;
    this.#enter("refused");
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new Refused(problem, { key: true }));
    for (const stream of [...this.#streams.values()]) stream.failed(problem);
  }

  #enter(state) {
    this.state = state;
    this.#notify();
  }
}

/** The clock, the timers, chance and sockets, as a browser has them; tests bring their own. */
export function browser() {
  return {
    now: () => performance.now(),
    random: Math.random,
    setTimeout: (task, ms) => setTimeout(task, ms),
    clearTimeout: (id) => clearTimeout(id),
    setInterval: (task, ms) => setInterval(task, ms),
    clearInterval: (id) => clearInterval(id),
    socket: (url, protocol) => new WebSocket(url, protocol),
  };
}
