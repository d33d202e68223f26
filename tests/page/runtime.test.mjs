import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection } from "../../static/js/connection.js";
import { Refused } from "../../static/js/credentials.js";
import { NgramDrafter } from "../../static/js/drafters/ngram.js";
import { NoDrafter } from "../../static/js/drafters/none.js";
import { HybridStream, originOf } from "../../static/js/runtime.js";
import { ScriptedGateway, settled } from "./scripted_gateway.mjs";

const REQUEST = {
  model: "m",
  messages: [{ role: "user", content: "q" }],
  sampling: { temperature: 0, seed: 7 },
  max_tokens: 50,
  policy: "eager",
};

/** A view that keeps what it was shown. */
function recorder() {
  const seen = { text: "", origins: [], rolledBack: [], pending: [], ended: null, away: 0, back: 0 };
  return {
    seen,
    committed: (pieces, { rolledBack }) => {
      for (const { text, origin } of pieces) {
        seen.text += text;
        seen.origins.push(origin);
      }
      if (rolledBack.length) seen.rolledBack.push(rolledBack);
    },
    pending: (texts) => (seen.pending = texts),
    away: () => (seen.away += 1),
    back: () => (seen.back += 1),
    ended: (outcome) => (seen.ended = outcome),
  };
}

async function begin(gateway, options = {}) {
  const { drafter = new NgramDrafter(), ticket = async () => "ticket", request = REQUEST, context = null } = options;
  const connection = new Connection({ url: "", ticket, environment: gateway.environment() });
  const view = recorder();
  const stream = new HybridStream({ connection, drafter, request, view, context, now: () => gateway.clock });
  stream.start();
  await settled();
  return { connection, stream, seen: view.seen };
}

async function finish(gateway) {
  while (gateway.step()) await settled();
}

const text = (tokens) => tokens.map((token) => `t${token} `).join("");
const REPEATING = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3, 4];

/** Proposes what it was told, each a task later, as a model in a worker would; 99 where it was told nothing. */
function slowDrafter(tokens) {
  return {
    begin: () => {
      let length = 0;
      return {
        propose: async () => {
          await settled();
          return { token: tokens[length++] ?? 99, confidence: 1 };
        },
        rollback: (to) => (length = Math.min(length, to)),
        feed: (fed) => (length += fed.length),
        close() {},
      };
    },
    close() {},
  };
}

test("hybrid gives the target's text, in fewer steps, and says where each token came from", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { stream, seen } = await begin(gateway);
  let steps = 1;
  while (gateway.step()) {
    steps += 1;
    await settled();
  }
  assert.equal(seen.text, text(REPEATING));
  assert.equal(seen.ended.reason, "stop");
  assert.ok(steps < REPEATING.length, `${steps} steps`);
  assert.ok(seen.origins.includes("accepted"));
  assert.equal(seen.origins[11], "corrected"); // the 9 stands where a 4 was drafted
  assert.deepEqual(seen.rolledBack[0][0], "t4 ");
  assert.ok(stream.alpha > 0.5 && stream.alpha < 1);
});

test("without drafts it is an ordinary generation, one step a token", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { stream, seen } = await begin(gateway, { drafter: new NoDrafter() });
  await finish(gateway);
  assert.equal(seen.text, text(REPEATING));
  assert.deepEqual(new Set(seen.origins), new Set(["cloud"]));
  assert.equal(gateway.of("draft").length, 0);
  assert.equal(stream.alpha, null);
});

test("a lost connection is resumed where it broke, under a new stream id and a higher epoch", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { seen } = await begin(gateway);
  for (let i = 0; i < 5; i++) {
    gateway.step();
    await settled();
  }
  const held = seen.origins.length;
  gateway.drop();
  assert.equal(seen.away, 1);
  await gateway.fire();
  const [resume] = gateway.of("resume");
  assert.equal(resume.held, held);
  assert.notEqual(resume.stream, gateway.of("open")[0].stream);
  assert.equal(seen.back, 1);
  await finish(gateway);
  assert.equal(seen.text, text(REPEATING));
  assert.equal(gateway.of("open").length, 1);
});

test("a network in doubt is asked: a gateway that answers stays, silence is a loss", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { connection, seen } = await begin(gateway);
  connection.doubt();
  gateway.clock += 1;
  gateway.say(gateway.socket, ["window", 0, 4]);
  await gateway.fire();
  assert.deepEqual([connection.state, seen.away], ["open", 0]);
  gateway.socket.send = () => {}; // as Chromium's socket that is closing: nothing leaves, and no close is told of
  connection.doubt();
  await gateway.fire();
  assert.deepEqual([connection.state, seen.away], ["waiting", 1]);
  await gateway.fire();
  await finish(gateway);
  assert.equal(seen.text, text(REPEATING));
});

test("a socket that opens and is never welcomed is given up, and another one tried", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  gateway.welcoming = false;
  const { connection, seen } = await begin(gateway);
  await gateway.pass(5000);
  assert.deepEqual([connection.state, gateway.socketCount], ["connecting", 1]);
  await gateway.pass(10000);
  assert.equal(connection.state, "waiting");
  gateway.welcoming = true;
  await gateway.fire();
  assert.deepEqual([connection.state, gateway.socketCount], ["open", 2]);
  await finish(gateway);
  assert.equal(seen.text, text(REPEATING));
});

test("silence counts as a loss only while a stream runs", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { connection, stream } = await begin(gateway);
  await gateway.pass(11000); // the pong answers
  await gateway.pass(11000);
  assert.equal(connection.state, "open");
  gateway.socket.send = () => {};
  await gateway.pass(11000);
  connection.detach(stream);
  await gateway.pass(11000);
  assert.equal(connection.state, "open");
  connection.attach(stream);
  await gateway.pass(11000);
  assert.equal(connection.state, "waiting");
});

test("a gateway that has forgotten the stream is given it again: prompt ids, output so far, seed", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { seen } = await begin(gateway);
  gateway.step();
  await settled();
  gateway.step();
  await settled();
  gateway.drop();
  gateway.streams.clear();
  await gateway.fire();
  const again = gateway.of("open")[1];
  assert.deepEqual(again.committed, REPEATING.slice(0, 2));
  assert.deepEqual([again.prompt, again.messages, again.sampling.seed], [gateway.prompt, [], 7]);
  await finish(gateway);
  assert.equal(seen.text, text(REPEATING));
});

test("a connection lost before the answer began asks again from the start", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2] });
  gateway.welcoming = false;
  const { seen } = await begin(gateway);
  gateway.drop();
  gateway.welcoming = true;
  await gateway.fire();
  await finish(gateway);
  assert.equal(seen.text, text([1, 2]));
});

test("each connection buys its own ticket", async () => {
  let sold = 0;
  const gateway = new ScriptedGateway({ output: [1, 2, 3] });
  await begin(gateway, { ticket: async () => `ticket ${sold++}` });
  gateway.drop();
  await gateway.fire();
  assert.deepEqual(
    gateway.of("hello").map(({ ticket }) => ticket),
    ["ticket 0", "ticket 1"],
  );
  assert.ok(gateway.of("hello").every(({ auth }) => auth === ""));
});

test("a refused key ends the stream with a sentence and nothing is tried again", async () => {
  const gateway = new ScriptedGateway({ output: [1] });
  const ticket = async () => {
    throw new Refused("unknown key", { key: true });
  };
  const { connection, seen } = await begin(gateway, { ticket });
  assert.deepEqual([connection.state, seen.ended.message, gateway.timers.length], ["refused", "unknown key", 0]);
});

test("an unreachable gateway is tried again after a growing time", async () => {
  const gateway = new ScriptedGateway({ output: [1] });
  let reachable = false;
  const ticket = async () => {
    if (!reachable) throw new TypeError("no route");
    return "ticket";
  };
  const { connection } = await begin(gateway, { ticket });
  const first = gateway.timers.at(-1).ms;
  await gateway.fire();
  assert.ok(gateway.timers.at(-1).ms > first);
  reachable = true;
  await gateway.fire();
  assert.equal(connection.state, "open");
});

test("commits that land while a slow drafter thinks void what it was thinking, and the text stays right", async () => {
  const output = [1, 2, 3, 4, 5, 6, 7, 8];
  const gateway = new ScriptedGateway({ output });
  const { stream, seen } = await begin(gateway, { drafter: slowDrafter([1, 2, 0, 4, 5, 6, 7, 8]) });
  const thoughts = [3, 0, 4, 1, 0, 3, 2, 5]; // tokens that it can think of between one step and the next
  do for (let i = thoughts.shift() ?? 1; i > 0; i--) await settled();
  while (gateway.step());
  assert.equal(seen.text, text(output));
  const { drafted, agreed, rolledBack } = stream.session.stats;
  assert.equal(drafted, agreed + rolledBack);
  assert.ok(agreed > 0 && rolledBack > 0);
  for (const draft of gateway.of("draft")) assert.ok(draft.tokens.length <= 8);
});

/** Draws from `tokens` and then has no more to say; `began` is the prompt that it was given. */
function modelOf(tokens) {
  const model = {
    endsAt: (token) => token === 0,
    begin: (prompt) => {
      model.began = prompt;
      let length = 0;
      return {
        propose: async () => (length < tokens.length ? { token: tokens[length++], confidence: 1 } : null),
        rollback: (to) => (length = Math.min(length, to)),
        feed: (fed) => (length += fed.length),
        close() {},
      };
    },
  };
  return model;
}

const DRAFT_ONLY = { ...REQUEST, messages: [], privacy: "draft_only" };

test("draft_only: the drafter alone has the prompt, and a lost socket resumes without it", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2, 3, 4, 5, 0], prompt: [] });
  const drafter = modelOf([1, 2, 9, 4, 5, 0]);
  const { stream, seen } = await begin(gateway, { drafter, request: DRAFT_ONLY, context: [70, 71] });
  assert.deepEqual(drafter.began, [70, 71]);
  assert.equal(stream.hold(), null);
  gateway.step();
  await settled();
  gateway.drop();
  gateway.streams.clear();
  await gateway.fire();
  for (const open of gateway.of("open")) assert.deepEqual([open.prompt, open.messages, open.privacy], [[], [], "draft_only"]);
  assert.equal(gateway.of("open").length, 2);
  await finish(gateway);
  assert.equal(seen.text, text([1, 2, 3, 4, 5, 0]));
  assert.equal(seen.ended.reason, "stop"); // not starved: the last token ends the turn
});

test("draft_only: a drafter that can't go on ends the answer instead of leaving it waiting", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2, 3], prompt: [] });
  const { seen } = await begin(gateway, { drafter: modelOf([1]), request: DRAFT_ONLY, context: [70] });
  assert.equal(seen.ended, null);
  gateway.step();
  await settled();
  assert.equal(seen.ended.reason, "error");
  assert.equal(gateway.of("cancel").length, 1);
});

test("sync is a limit of one block, whatever window the cloud allows", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { stream } = await begin(gateway, { request: { ...REQUEST, policy: "sync" } });
  gateway.say(gateway.socket, ["window", stream.id, 200]);
  assert.equal(stream.session.ahead, 4);
});

test("drafting pauses where a draft is likely wrong, and behind the end of a turn", async () => {
  const certain = (confidence) => ({
    begin: () => ({ propose: () => ({ token: 101, confidence }), rollback() {}, feed() {}, close() {} }),
  });
  for (const [confidence, prompt, drafted] of [
    [0.5, [100, 101], 2],
    [0.1, [100, 101], 1],
    [1, [100, 101], 4],
    [1, [], 4],
  ]) {
    const gateway = new ScriptedGateway({ output: REPEATING, prompt });
    const { stream } = await begin(gateway, { drafter: certain(confidence) });
    assert.equal(stream.session.tail.length, drafted, String(confidence));
  }
  const gateway = new ScriptedGateway({ output: REPEATING, control: [101] });
  const { stream } = await begin(gateway, { drafter: certain(1) });
  assert.equal(stream.session.tail.length, 1);
});

test("stopping tells the cloud, drafts no more, and ends with what the cloud had", async () => {
  const gateway = new ScriptedGateway({ output: REPEATING });
  const { stream, seen } = await begin(gateway);
  gateway.step();
  stream.cancel();
  stream.cancel();
  assert.deepEqual([gateway.of("cancel").length, seen.ended], [1, null]);
  gateway.step(); // was under way
  gateway.say(gateway.socket, ["finish", stream.id, 2, "cancelled", null, { completion: 2, steps: 2 }]);
  assert.deepEqual([seen.ended.reason, seen.ended.usage.steps, seen.text], ["cancelled", 2, text([1, 2])]);
});

test("stopping without a connection ends at once", async () => {
  for (const order of [
    ["cancel", "drop"],
    ["drop", "cancel"],
  ]) {
    const gateway = new ScriptedGateway({ output: REPEATING });
    const { stream, seen } = await begin(gateway);
    for (const act of order) act === "drop" ? gateway.drop() : stream.cancel();
    assert.equal(seen.ended.reason, "cancelled");
    await gateway.fire();
    assert.equal(gateway.of("resume").length, 0);
  }
});

test("text that was withheld to the end comes in a commit without tokens", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2] });
  const { stream, seen } = await begin(gateway);
  gateway.step();
  gateway.say(gateway.socket, ["commit", stream.id, 1, [], 0, 0, 0, "rest"]);
  assert.equal(seen.text, "t1 rest");
});

test("a gateway that leaves a gap is told to stop and the answer ends with an error", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2] });
  const { stream, seen } = await begin(gateway);
  gateway.say(gateway.socket, ["commit", stream.id, 5, [1]]);
  assert.equal(seen.ended.reason, "error");
  assert.equal(gateway.of("cancel").length, 1);
});

test("frames that mean nothing to us pass by", async () => {
  const gateway = new ScriptedGateway({ output: [1, 2] });
  const { seen } = await begin(gateway);
  for (const odd of [["fanfare", 1], ["commit"], ["commit", 999, 0, [1]], 7]) gateway.say(gateway.socket, odd);
  await finish(gateway);
  assert.equal(seen.text, text([1, 2]));
});

test("a draft that came too late is the cloud's own token", () => {
  const change = { agreed: 2, rolledBack: [] };
  assert.deepEqual(
    [0, 1, 2].map((i) => originOf(i, change, 1)),
    ["accepted", "cloud", "cloud"],
  );
  assert.equal(originOf(2, { agreed: 2, rolledBack: [5] }, 2), "corrected");
});
