/** The operator's page: reads the gateway's pictures, one a second, and puts them on the board. */

import { forgetKey, keepKey, takeKey } from "./credentials.js";
import { events } from "./events.js";
import { Board } from "./ops_board.js";

const RETRY_MS = 2000;

const $ = (id) => document.getElementById(id);
/** Beside the API key of the other page, never in its place. */
const storage = {
  getItem: (name) => sessionStorage.getItem(`admin ${name}`),
  setItem: (name, value) => sessionStorage.setItem(`admin ${name}`, value),
  removeItem: (name) => sessionStorage.removeItem(`admin ${name}`),
};
const board = new Board($);
let key = takeKey(location, history, storage);

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  watch();
});
if (key !== "") watch();

async function watch() {
  $("key-form").hidden = true;
  say("connecting", "Connecting …");
  try {
    const response = await fetch("/admin/events", { headers: { authorization: `Bearer ${key}` } });
    if (response.status === 401 || response.status === 403) return refuse((await response.json()).error.message);
    if (!response.ok) throw new TypeError(`HTTP ${response.status}`);
    keepKey(storage, key);
    $("board").hidden = false;
    for await (const data of events(response.body)) {
      const picture = JSON.parse(data);
      say("open", picture.draining ? `${picture.model}, shutting down` : picture.model);
      board.show(picture);
    }
  } catch (error) {
    // Fetch and its body fail with a TypeError when the network or the gateway goes; all else is a fault of ours.
    if (!(error instanceof TypeError)) throw error;
  }
  say("waiting", "The gateway can’t be reached. Trying again …");
  setTimeout(watch, RETRY_MS);
}

function refuse(message) {
  forgetKey(storage);
  say("refused", "Not admitted");
  $("key-form").hidden = false;
  $("hint").textContent = message;
  $("hint").toggleAttribute("data-problem", true);
}

function say(state, words) {
  $("connection").dataset.state = state;
  if ($("state").textContent !== words) $("state").textContent = words;
}
