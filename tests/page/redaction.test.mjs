import assert from "node:assert/strict";
import { test } from "node:test";

import { Redaction } from "../../static/js/redaction.js";

const QUESTION = "Write to ann@example.org or +49 30 1234567, IBAN DE89 3704 0044 0532 0130 00, card 4111 1111 1111 1111.";

test("what has the shape of personal data is replaced, the same by the same sign", () => {
  const redaction = new Redaction();
  assert.equal(redaction.redact(QUESTION), "Write to [EMAIL_1] or [PHONE_1], IBAN [IBAN_1], card [CARD_1].");
  assert.equal(redaction.redact("ann@example.org, bob@example.org"), "[EMAIL_1], [EMAIL_2]");
});

test("numbers that only look like it stay", () => {
  const text = "In 2024, 4111 1111 1111 1112 people, or 3.14159265 of them, ran 1,000 m at 10:30.";
  assert.equal(new Redaction().redact(text), text);
});

test("an answer gets its data back, however its signs are cut", () => {
  const redaction = new Redaction();
  redaction.redact("ann@example.org");
  for (const cuts of [["Mail [EMAIL_1] now [x"], ["Mail [EM", "AIL_", "1", "] now", " [", "x"], [..."Mail [EMAIL_1] now [x"]]) {
    const restorer = redaction.restorer();
    const pieces = cuts.flatMap((text) => restorer.push({ text, origin: "cloud" }));
    const text = [...pieces, ...restorer.flush()].map((piece) => piece.text).join("");
    assert.equal(text, "Mail ann@example.org now [x");
  }
});
