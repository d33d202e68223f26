import assert from "node:assert/strict";
import { test } from "node:test";

import { Shelf } from "../../static/js/drafters/shelf.js";

const ABOUT = { id: "m", bytes: 100, fingerprint: "f" };

/** A supply of which everything can be had; `given` says what can't. */
function supply(given = {}) {
  return {
    possible: async () => true,
    about: async () => ABOUT,
    hasLibrary: async () => true,
    atOnce: async () => false,
    load: async ({ onProgress }) => {
      onProgress(50);
      return { name: "m" };
    },
    ...given,
  };
}

function shelfOf(given) {
  const states = [];
  const shelf = new Shelf({ key: () => "key", notify: () => states.push(shelf.state), supply: supply(given) });
  return { shelf, states };
}

test("a model is offered, and loaded when somebody asks for it, once", async () => {
  let loads = 0;
  const load = async ({ about, key, onProgress }) => {
    loads += 1;
    onProgress(50);
    return { name: about.id, key };
  };
  const { shelf, states } = shelfOf({ load });
  await shelf.look("f");
  assert.deepEqual([shelf.state, shelf.offered, shelf.drafter], ["offered", true, null]);
  await Promise.all([shelf.load(), shelf.load()]);
  assert.deepEqual([shelf.state, shelf.received, loads], ["ready", 50, 1]);
  assert.deepEqual(shelf.drafter, { name: "m", key: "key" });
  assert.deepEqual(new Set(states), new Set(["looking", "offered", "loading", "ready"]));
});

test("what is kept from an earlier visit loads by itself", async () => {
  const { shelf } = shelfOf({ atOnce: async () => true });
  await shelf.look("f");
  await shelf.load();
  assert.equal(shelf.state, "ready");
});

const ABSENT = {
  "a browser that can't": { possible: async () => false, about: () => assert.fail("it needn't be asked for") },
  "a gateway without one": { about: async () => null },
  "another vocabulary": { about: async () => ({ ...ABOUT, fingerprint: "g" }) },
  "a page without libraries": { hasLibrary: async () => false },
};
for (const [name, given] of Object.entries(ABSENT))
  test(`${name}: nothing is offered, and why is said`, async () => {
    const { shelf } = shelfOf(given);
    await shelf.look("f");
    assert.deepEqual([shelf.state, shelf.offered], ["missing", false]);
    assert.notEqual(shelf.problem, "");
  });

test("a failure is said, and the next try may succeed; a gateway that couldn't be asked is asked again", async () => {
  let fails = true;
  const load = async () => {
    if (fails) throw new Error("no memory");
    return { name: "m" };
  };
  const { shelf } = shelfOf({ load });
  await shelf.look("f");
  await shelf.load();
  assert.deepEqual([shelf.state, shelf.problem], ["failed", "The draft model could not be loaded: no memory"]);
  fails = false;
  await shelf.load();
  assert.equal(shelf.state, "ready");
  const { shelf: other } = shelfOf();
  other.state = "looking";
  other.away();
  await other.look("f");
  assert.equal(other.state, "offered");
});
