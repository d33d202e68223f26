/**
 * A distance that isn't there: delays each message in this page, both ways, as a network of a given round-trip time
 * would. Messages keep their order, as on one TCP connection: jitter delays, it never overtakes.
 */

export class Network {
  rttMs = 0;
  /** Largest extra delay of a message, ms, uniform. */
  jitterMs = 0;
  #random;

  constructor({ random = Math.random } = {}) {
    this.#random = random;
  }

  /** For one message, one way, ms. */
  delay() {
    return this.rttMs / 2 + this.jitterMs * this.#random();
  }

  /** An `environment` (connection.js) whose sockets are that far away. */
  around(environment) {
    const { socket, ...rest } = environment;
    return { ...rest, socket: (...given) => new DistantSocket(socket(...given), environment, () => this.delay()) };
  }
}

class DistantSocket {
  #socket;
  #up;
  #down;

  constructor(socket, environment, delay) {
    this.#socket = socket;
    this.#up = new Line(environment, delay);
    this.#down = new Line(environment, delay);
    socket.onopen = () => this.#down.carry(() => this.onopen?.());
    socket.onmessage = (event) => this.#down.carry(() => this.onmessage?.(event));
    socket.onclose = (event) => this.#down.carry(() => this.onclose?.(event));
  }

  send(text) {
    this.#up.carry(() => this.#socket.readyState === WebSocket.OPEN && this.#socket.send(text));
  }

  close(code) {
    this.#up.carry(() => this.#socket.close(code));
  }
}

/** One direction: what goes in first comes out first, however late a timer is. */
class Line {
  #environment;
  #delay;
  #freeAt = 0;
  #waiting = [];

  constructor(environment, delay) {
    this.#environment = environment;
    this.#delay = delay;
  }

  carry(deliver) {
    const now = this.#environment.now();
    this.#freeAt = Math.max(this.#freeAt, now + this.#delay());
    if (this.#freeAt <= now && this.#waiting.length === 0) return deliver();
    this.#waiting.push(deliver);
    this.#environment.setTimeout(() => this.#waiting.shift()(), this.#freeAt - now);
  }
}
