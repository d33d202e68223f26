import assert from "node:assert/strict";
import { test } from "node:test";

import { acceptanceRate, Figures } from "../../static/js/figures.js";
import { Pieces } from "../../static/js/pieces.js";
import { keepBytes, sentences, visible } from "../../static/js/text.js";

test("a commit's text is split where its cuts say, by characters and not by UTF-16 units", () => {
  const pieces = new Pieces();
  assert.deepEqual(pieces.split({ tokens: [1, 2, 3], text: "a🚴é!", cuts: [2, 0, 2] }), ["a🚴", "", "é!"]);
  assert.deepEqual([pieces.of(1), pieces.of(2), pieces.of(3)], ["a🚴", null, "é!"]);
});

test("without usable cuts no text is lost, and a lone token's is still learnt", () => {
  const pieces = new Pieces();
  assert.deepEqual(pieces.split({ tokens: [1, 2], text: "ab", cuts: [] }), ["", "ab"]);
  assert.deepEqual(pieces.split({ tokens: [1, 2], text: "ab", cuts: [1, 5] }), ["", "ab"]);
  pieces.split({ tokens: [7], text: "x", cuts: [] });
  assert.deepEqual([pieces.of(1), pieces.of(7)], [null, "x"]);
});

test("the prompt's pieces are known from the start, if they are one for each token", () => {
  const pieces = new Pieces();
  pieces.learnPrompt([4, 5], ["x"]);
  assert.equal(pieces.of(4), null);
  pieces.learnPrompt([4, 5], ["x", "y"]);
  assert.equal(pieces.of(5), "y");
});

test("characters that hide or reorder text are shown as signs", () => {
  assert.equal(visible("a\u0000b\u001b[31m\u202ec\n\td"), "a␀b␛[31m\ufffdc\n\td");
});

test("a finish keeps bytes, not characters", () => {
  assert.equal(keepBytes("né!", 3), "né");
  assert.equal(keepBytes("né!", 9), "né!");
});

test("only whole sentences are read aloud", () => {
  assert.deepEqual(sentences("One. Two! Thr"), ["One. Two!", " Thr"]);
  assert.deepEqual(sentences("Nothing yet"), ["", "Nothing yet"]);
});

test("ITL is from the first to the last arrival over n − 1 tokens", () => {
  const figures = new Figures(100);
  assert.deepEqual([figures.ttftMs, figures.itlMs, figures.bytesUpPerToken], [null, null, null]);
  figures.arrived(1, 150);
  assert.equal(figures.itlMs, null);
  figures.arrived(3, 210);
  figures.arrived(0, 900);
  figures.bytesUp = 40;
  assert.deepEqual([figures.ttftMs, figures.itlMs, figures.largestGapMs, figures.bytesUpPerToken], [50, 20, 60, 10]);
});

test("the acceptance rate counts what met a commit, and says nothing before", () => {
  assert.equal(acceptanceRate({ agreed: 0, rollbacks: 0 }), null);
  assert.equal(acceptanceRate({ agreed: 3, rollbacks: 1 }), 0.75);
});
