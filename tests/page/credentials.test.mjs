import assert from "node:assert/strict";
import { test } from "node:test";

import { backoff } from "../../static/js/backoff.js";
import { buyTicket, keyIn, Refused, takeKey } from "../../static/js/credentials.js";

function place(hash) {
  const kept = new Map();
  const storage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) };
  const shown = [];
  const history = { replaceState: (_state, _title, url) => shown.push(url) };
  return { location: { hash, pathname: "/", search: "?a=1" }, history, storage, shown };
}

test("a key in the fragment is kept for this tab and leaves the address bar", () => {
  const { location, history, storage, shown } = place("#key=sk-pl-1");
  assert.equal(takeKey(location, history, storage), "sk-pl-1");
  assert.deepEqual(shown, ["/?a=1"]);
  assert.equal(takeKey({ ...location, hash: "" }, history, storage), "sk-pl-1");
});

test("a fragment that is a place on the page is no key", () => {
  const { location, history, storage, shown } = place("#question");
  assert.deepEqual([keyIn(location), takeKey(location, history, storage), shown], ["", "", []]);
});

test("a ticket is bought with the key; a refused key is told from a gateway in trouble", async () => {
  const asked = [];
  const answer = (status, body) => async (url, options) => {
    asked.push([url, options.method, options.headers.authorization]);
    return new Response(JSON.stringify(body), { status });
  };
  assert.equal(await buyTicket("k", { fetch: answer(200, { ticket: "t" }) }), "t");
  assert.deepEqual(asked, [["/v1/tickets", "POST", "Bearer k"]]);
  await assert.rejects(buyTicket("k", { fetch: answer(401, {}) }), (error) => error instanceof Refused && error.key);
  await assert.rejects(buyTicket("k", { fetch: answer(429, {}) }), (error) => error instanceof Refused && !error.key);
});

test("waiting doubles up to a bound, and chance spreads it over the upper half", () => {
  assert.deepEqual(
    [0, 1, 2].map((attempt) => backoff(attempt, () => 0)),
    [125, 250, 500],
  );
  assert.equal(backoff(40, () => 0.999999) <= 8000, true);
  assert.equal(
    backoff(40, () => 0),
    4000,
  );
});
