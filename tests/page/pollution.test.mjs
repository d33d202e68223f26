import assert from "node:assert/strict";
import { test } from "node:test";

import { events } from "../../static/js/events.js";
import { decode } from "../../static/js/protocol/frames.js";
import { Redaction } from "../../static/js/redaction.js";

const KEYS = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"];

function clean() {
  assert.equal({}.polluted, undefined);
  assert.equal([].polluted, undefined);
  assert.deepEqual(Object.keys(Object.prototype), []);
}

test("a gateway's frame can't reach the prototype of everything", () => {
  for (const key of KEYS) {
    const evil = `{"${key}":{"polluted":1},"steps":4}`;
    const finish = decode(`["finish",1,2,"stop",null,${evil}]`);
    assert.equal(Object.getPrototypeOf(finish.usage), Object.prototype);
    assert.equal(finish.usage.steps, 4);
    const welcome = decode(`["welcome",1,[${evil}],${evil}]`);
    assert.equal(Object.getPrototypeOf(welcome.limits), Object.prototype);
    assert.equal(welcome.limits.streams, 64);
    assert.throws(() => decode(`["${key}",1,2,3]`));
    clean();
  }
});

test("fields that should be numbers or texts can't be objects", () => {
  for (const bad of ['{"polluted":1}', '["__proto__"]', "true", "null"]) {
    assert.throws(() => decode(`["commit",1,${bad},[1]]`));
    assert.throws(() => decode(`["commit",1,2,${bad === '["__proto__"]' ? bad : `[${bad}]`}]`));
    assert.throws(() => decode(`["error",1,${bad}]`));
  }
  clean();
});

test("server-sent events carry data and nothing else", async () => {
  const text = KEYS.map((key) => `${key}: {"polluted":1}\ndata: {"${key}":{"polluted":1}}\n\n`).join("");
  const body = new Blob([text]).stream();
  const seen = [];
  for await (const data of events(body, () => {})) seen.push(JSON.parse(data));
  assert.equal(seen.length, KEYS.length);
  clean();
});

test("what the page kept of an earlier life is pairs, whatever they are called", () => {
  const kept = JSON.parse(JSON.stringify(KEYS.map((key) => [`[${key}_1]`, key])));
  const redaction = new Redaction([...kept, ["__proto__", { polluted: 1 }]]);
  const asked = redaction.redact("write to a@b.example about __proto__");
  assert.equal(asked, "write to [EMAIL_1] about __proto__");
  assert.deepEqual(redaction.restorer().push({ text: "[EMAIL_1]", origin: "cloud" })[0].text, "a@b.example");
  clean();
});
