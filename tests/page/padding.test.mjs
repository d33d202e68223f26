/** Envelopes are those of docs/protocol-vectors.json; what leaves, and when, tells nothing of what is in it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Connection } from "../../static/js/connection.js";
import { Outbox } from "../../static/js/outbox.js";
import { MalformedFrame } from "../../static/js/protocol/errors.js";
import { decodeEdge } from "../../static/js/protocol/frames.js";
import { Cadence, pad, PADDING, RUN_TICKS } from "../../static/js/protocol/padding.js";
import { ScriptedGateway, settled } from "./scripted_gateway.mjs";

const VECTORS = JSON.parse(readFileSync(new URL("../../docs/protocol-vectors.json", import.meta.url), "utf8"));

test("every envelope of the vectors is made as it stands there, and opened again", () => {
  assert.ok(VECTORS.padded.length > 2);
  for (const { size, tick_ms: tickMs, frame, json } of VECTORS.padded) {
    assert.equal(pad(frame, { size, tickMs }), json);
    assert.deepEqual(decodeEdge(json), frame && decodeEdge(frame));
  }
});

test("filling up goes no further than the gateway takes", () => {
  const frame = JSON.stringify(["open", 1, "m".repeat(2900)]);
  assert.equal(pad(frame, PADDING, 3000).length, 3032);
  assert.equal(pad(frame, PADDING).length, 4096);
  const longer = JSON.stringify(["open", 1, "m".repeat(3100)]);
  assert.ok(pad(longer, PADDING, 3000).length > longer.length, "nothing is cut");
});

test("an envelope in an envelope, or around what is no frame, is malformed", () => {
  for (const inner of [pad("null", PADDING), "7", '"x"'])
    assert.throws(() => decodeEdge(pad(inner, PADDING)), MalformedFrame);
});

test("a run goes on to the end of its ticks when there is nothing more to say, and leaves out what was slept through", () => {
  const cadence = new Cadence(50);
  let now = 1000;
  let sent = 0;
  do {
    now += cadence.waitMs(now);
    cadence.sent(now, sent < 10);
    sent += 1;
  } while (cadence.running);
  assert.deepEqual([sent, now], [RUN_TICKS, 1000 + 50 * (RUN_TICKS - 1)]);
  cadence.sent(5000, true);
  cadence.sent(5275, true); // five ticks late
  assert.equal(cadence.waitMs(5275), 25);
});

test("drafts of one path wait as one, up to what a frame may hold; those of a path that was left are gone", () => {
  const draft = (epoch, start, tokens) => ({ type: "draft", stream: 1, epoch, start, tokens });
  const outbox = new Outbox(4);
  outbox.push({ type: "ping", nonce: 1 });
  outbox.push(draft(0, 0, [1, 2]));
  outbox.push(draft(0, 2, [3]));
  outbox.push(draft(0, 3, [4, 5]));
  assert.deepEqual(outbox.take(), { type: "ping", nonce: 1 });
  assert.deepEqual(outbox.take(), draft(0, 0, [1, 2, 3]));
  outbox.push(draft(1, 2, [9]));
  assert.deepEqual(outbox.take(), draft(1, 2, [9]));
  assert.equal(outbox.take(), null);
});

async function padded(gateway) {
  const connection = new Connection({ url: "", ticket: async () => "ticket", environment: gateway.environment() });
  connection.pad(PADDING);
  const welcomed = connection.connect();
  welcomed.catch(() => {});
  await settled();
  return connection;
}

test("behind `welcome` all leaves in envelopes of one size, one a tick, until the run is over", async () => {
  const gateway = new ScriptedGateway({ output: [1] });
  const connection = await padded(gateway);
  const sent = [];
  connection.attach({
    connected() {},
    receive() {},
    sent: (frame, bytes) => sent.push([frame.type, bytes]),
  });
  connection.send({ type: "cancel", stream: 0 });
  const before = gateway.messages.length;
  let ticks = 0;
  while (gateway.timers.length > 0) {
    if (ticks === 10) connection.detach({ id: 0 });
    gateway.clock += PADDING.tickMs;
    await gateway.fire();
    ticks += 1;
    assert.equal(gateway.messages.length, before + ticks);
  }
  assert.equal(ticks, RUN_TICKS);
  assert.ok(gateway.messages.slice(1).every((message) => message.length === PADDING.size));
  assert.deepEqual(sent, [["cancel", PADDING.size]]);
  assert.ok(connection.roundTripMs !== null); // its pings were answered in envelopes as well
});

test("a gateway that knows no padding is left, with a sentence, and taken again without", async () => {
  const gateway = new ScriptedGateway({ output: [1] });
  gateway.padding = false;
  const connection = await padded(gateway);
  await gateway.fire();
  assert.equal(connection.state, "refused");
  assert.match(connection.problem, /pad/);
  connection.pad(null);
  await settled();
  assert.equal(connection.state, "open");
});

test("another padding means another socket", async () => {
  const gateway = new ScriptedGateway({ output: [1] });
  const connection = await padded(gateway);
  connection.pad(null);
  await settled();
  assert.deepEqual([gateway.socketCount, connection.state], [2, "open"]);
  assert.equal(JSON.parse(gateway.messages.at(-1))[0], "ping");
});
