/**
 * The frames of `paceline.v1`, subprotocol `paceline.v1.json`: each is an array, its type's name first. The counterpart
 * of edge/protocol/frames.py; field names are the wire's. A field that is missing at the end takes its default, one too
 * many is ignored: so either side can be the newer one.
 */

import { MalformedFrame, UnknownFrame } from "./errors.js";
import { unpad } from "./padding.js";

export const VERSION = 1;
export const SUBPROTOCOL = "paceline.v1.json";

/** Default of a field that must be there. */
const REQUIRED = Symbol("required");

const list = () => [];
const natural = (value) => Number.isInteger(value) && value >= 0 && value <= 2 ** 53;
const tokens = (value) => Array.isArray(value) && value.every((token) => natural(token) && token < 2 ** 31);
const string = (value) => typeof value === "string";
const boolean = (value) => typeof value === "boolean";
const object = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const number = (value) => typeof value === "number";
const array = Array.isArray;
const orNull = (check) => (value) => value === null || check(value);

/** A table of the frames: [field, default or a function that makes it, check], in wire order. */
const EDGE_FRAMES = {
  hello: [
    ["version", REQUIRED, natural],
    ["auth", "", string],
    ["ticket", "", string],
    ["fingerprint", "", string],
    ["agent", "", string],
  ],
  open: [
    ["stream", REQUIRED, natural],
    ["model", REQUIRED, string],
    ["prompt", list, tokens],
    ["messages", list, array],
    ["committed", list, tokens],
    ["sampling", () => ({}), object],
    ["max_tokens", null, orNull(natural)],
    ["min_tokens", 0, natural],
    ["stop", list, array],
    ["policy", null, orNull(string)],
    ["privacy", "full", string],
    ["logprobs", null, orNull(natural)],
    ["text", false, boolean],
  ],
  draft: [
    ["stream", REQUIRED, natural],
    ["epoch", REQUIRED, natural],
    ["start", REQUIRED, natural],
    ["tokens", REQUIRED, tokens],
  ],
  resume: [
    ["stream", REQUIRED, natural],
    ["token", REQUIRED, string],
    ["held", 0, natural],
  ],
  cancel: [["stream", REQUIRED, natural]],
  ping: [["nonce", REQUIRED, natural]],
};

const CLOUD_FRAMES = {
  welcome: [
    ["version", REQUIRED, natural],
    ["models", REQUIRED, array],
    ["limits", REQUIRED, object],
  ],
  opened: [
    ["stream", REQUIRED, natural],
    ["resume", REQUIRED, string],
    ["prompt_length", REQUIRED, natural],
    // A seed that the cloud drew may pass 2^53; this edge always sends its own, which doesn't.
    ["seed", REQUIRED, number],
    ["choice", REQUIRED, natural],
    ["epoch", REQUIRED, natural],
    ["head", REQUIRED, natural],
    ["window", REQUIRED, natural],
    ["prompt", list, tokens],
    ["pieces", list, array],
  ],
  commit: [
    ["stream", REQUIRED, natural],
    ["start", REQUIRED, natural],
    ["tokens", REQUIRED, tokens],
    ["drafted", 0, natural],
    ["step_us", 0, natural],
    ["queue_us", 0, natural],
    ["text", "", string],
    ["logprobs", list, array],
    ["cuts", list, array],
  ],
  window: [
    ["stream", REQUIRED, natural],
    ["ahead", REQUIRED, natural],
  ],
  finish: [
    ["stream", REQUIRED, natural],
    ["length", REQUIRED, natural],
    ["reason", REQUIRED, string],
    ["kept_bytes", REQUIRED, orNull(natural)],
    ["usage", REQUIRED, object],
  ],
  error: [
    ["stream", REQUIRED, orNull(natural)],
    ["code", REQUIRED, string],
    ["message", "", string],
    ["final", false, boolean],
    ["epoch", null, orNull(natural)],
    ["retry_after_s", null, orNull(number)],
  ],
  pong: [["nonce", REQUIRED, natural]],
};

/** What `omit_defaults` leaves out of the maps inside a frame. */
const USAGE = { prompt: 0, completion: 0, drafted: 0, verified: 0, accepted: 0, matched: 0, steps: 0 };
const LIMITS = {
  frame_bytes: 1 << 20,
  draft_tokens: 64,
  held_tokens: 256,
  streams: 64,
  hello_s: 10,
  idle_s: 120,
  grace_s: 60,
};

/** `{type, ...fields}` as its JSON array; fields that are left out take their defaults. */
export function encode(frame) {
  const fields = fieldsOf(EDGE_FRAMES, frame.type) ?? fieldsOf(CLOUD_FRAMES, frame.type);
  if (fields === undefined) throw new UnknownFrame(`unknown frame type ${frame.type}`);
  const values = fields.map(([name, fallback]) => {
    const value = frame[name] === undefined ? defaultOf(fallback) : frame[name];
    if (value === REQUIRED) throw new MalformedFrame(`${frame.type} needs ${name}`);
    return value;
  });
  return JSON.stringify([frame.type, ...values]);
}

/**
 * A cloud frame's text as `{type, ...fields}`, out of its envelope if it has one; null for an empty envelope. Throws
 * UnknownFrame or MalformedFrame; neither ends the connection.
 */
export function decode(text) {
  return decodeFrom(CLOUD_FRAMES, text);
}

/** As `decode`, for the frames that an edge sends: tests and stubs need it. */
export function decodeEdge(text) {
  return decodeFrom(EDGE_FRAMES, text);
}

function decodeFrom(table, text) {
  const parts = unpad(parse(text));
  if (parts === null) return null;
  const type = parts[0];
  const fields = fieldsOf(table, type);
  if (fields === undefined) throw new UnknownFrame(`unknown frame type ${String(type).slice(0, 32)}`);
  const frame = { type };
  fields.forEach(([name, fallback, check], index) => {
    const value = index + 1 < parts.length ? parts[index + 1] : defaultOf(fallback);
    if (value === REQUIRED) throw new MalformedFrame(`${type} without ${name}`);
    if (!check(value)) throw new MalformedFrame(`${name} of ${type} is not what it should be`);
    frame[name] = value;
  });
  if (type === "finish") frame.usage = { ...USAGE, ...frame.usage };
  if (type === "welcome") frame.limits = { ...LIMITS, ...frame.limits };
  return frame;
}

function parse(text) {
  if (typeof text !== "string") throw new MalformedFrame(`${SUBPROTOCOL} takes text messages`);
  let parts;
  try {
    parts = JSON.parse(text);
  } catch {
    throw new MalformedFrame("not a frame: not JSON");
  }
  if (!Array.isArray(parts) || typeof parts[0] !== "string")
    throw new MalformedFrame("not a frame: not a tagged array");
  return parts;
}

/** Own properties only: a frame called `constructor` is unknown, not a surprise. */
function fieldsOf(table, type) {
  return Object.hasOwn(table, type) ? table[type] : undefined;
}

function defaultOf(fallback) {
  return typeof fallback === "function" ? fallback() : fallback;
}
