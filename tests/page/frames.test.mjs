import assert from "node:assert/strict";
import { test } from "node:test";

import { MalformedFrame, UnknownFrame } from "../../static/js/protocol/errors.js";
import { decode, decodeEdge, encode } from "../../static/js/protocol/frames.js";

test("a frame is an array: its type's name, then its fields in order", () => {
  const frame = { type: "draft", stream: 3, epoch: 1, start: 7, tokens: [40, 2] };
  assert.equal(encode(frame), '["draft",3,1,7,[40,2]]');
  assert.deepEqual(decodeEdge(encode(frame)), frame);
});

test("fields that are missing at the end take their defaults, and those we don't know are ignored", () => {
  assert.deepEqual(decode('["commit",3,7,[40]]').drafted, 0);
  assert.deepEqual(decode('["pong",3,"of a newer version"]'), { type: "pong", nonce: 3 });
  assert.equal(decode('["finish",1,2,"stop",null,{"steps":4}]').usage.accepted, 0);
});

test("a type that we don't know is told from a broken frame", () => {
  assert.throws(() => decode('["constructor",1]'), UnknownFrame);
  assert.throws(() => decode('["fanfare",1]'), UnknownFrame);
  for (const broken of [
    "",
    "{}",
    "[]",
    "[1]",
    '["commit",1,2]',
    '["commit",-1,2,[3]]',
    '["commit",1,2,["3"]]',
    '["pong",1.5]',
  ]) {
    assert.throws(() => decode(broken), MalformedFrame, broken);
  }
  assert.throws(() => decode(new ArrayBuffer(4)), MalformedFrame);
});

test("a frame without what it needs isn't sent", () => {
  assert.throws(() => encode({ type: "draft", stream: 1 }), MalformedFrame);
});
