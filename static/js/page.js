/** Wiring: credentials, connection, composer, settings. Nothing here knows how a stream works. */

import { Chat, needsModel } from "./chat.js";
import { browser, Connection } from "./connection.js";
import { buyTicket, forgetKey, keepKey, keyIn, takeKey } from "./credentials.js";
import { Disclosure } from "./disclosure.js";
import { DisclosureView } from "./disclosure_view.js";
import { Shelf } from "./drafters/shelf.js";
import { wasm, webgpu } from "./drafters/supplies.js";
import { bytes } from "./figures_view.js";
import { make } from "./make.js";
import { Network } from "./network.js";
import { PADDING } from "./protocol/padding.js";
import { Race } from "./race.js";
import { showOffer } from "./offer.js";
import { Views } from "./views.js";
import { Workbench } from "./workbench.js";

const SETTINGS = "paceline.settings";
const CONVERSATION = "paceline.conversation";
const THEMES = { system: "as the system", light: "light", dark: "dark" };
const SUGGESTIONS = [
  {
    title: "Mend a passage",
    detail: "Most of the answer is in the question.",
    question:
      "Correct the spelling mistakes and write out the whole text: A paceline is a line of cyclists who ride close" +
      " behind one anothr. The first rider breaks the wind, and the riders behind save up to a third of their" +
      " strenght. After a while the first rider moves aside, rolls back to the end of the line, and the secnd rider" +
      " takes the wind.",
  },
  {
    title: "Go over some code",
    detail: "Code repeats itself, and so does the drafter.",
    question:
      "Repeat this code with a comment above each function:\n" +
      "def area(width, height):\n    return width * height\n\n" +
      "def perimeter(width, height):\n    return 2 * (width + height)",
  },
  {
    title: "Explain guessing ahead",
    detail: "Nothing to copy: the cloud writes nearly all of it.",
    question: "Explain in three short sentences why guessing ahead can make a computer faster.",
  },
];

const $ = (id) => document.getElementById(id);
let key = takeKey(location, history, sessionStorage);

const notify = () => queueMicrotask(refresh);
const network = new Network();
const connection = new Connection({
  url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/verify`,
  ticket: () => buyTicket(key),
  notify,
  environment: network.around(browser()),
});
const shelves = {
  model: new Shelf({ key: () => key, notify, supply: wasm }),
  webllm: new Shelf({ key: () => key, notify, supply: webgpu }),
};
const workbench = new Workbench({
  parts: parts("lanes charts pause time detail rtt jitter distance palette", { empty: "bench-empty" }),
  network,
  onNetwork: () => connection.measure(),
});
const leftView = new DisclosureView($("left"));
const disclosure = new Disclosure(notify);
const shared = {
  connection,
  shelves,
  disclosure,
  network,
  settings,
  key: () => key,
  onTrace: (trace) => workbench.follow(trace),
  announce: (text) => ($("announcer").textContent = text),
  notify,
};
const chat = new Chat({ turns: $("turns"), ...shared });
const race = new Race({ element: $("race"), ...shared });
const views = new Views({ onChange: notify });

function parts(ids, others = {}) {
  const own = Object.fromEntries(ids.split(" ").map((id) => [id, $(id)]));
  return { ...own, ...Object.fromEntries(Object.entries(others).map(([name, id]) => [name, $(id)])) };
}

function settings() {
  return {
    drafter: $("drafter").value,
    policy: $("policy").value,
    temperature: Number($("temperature").value),
    maxTokens: Number($("length").value),
    model: $("model").value,
    privacy: $("privacy").value,
    sizes: $("sizes").value,
  };
}

function padding() {
  return $("sizes").value === "padded" ? PADDING : null;
}

function refresh() {
  showConnection();
  showModels();
  showOffer(chosenShelf(), settings().drafter, $);
  const chosen = connection.welcome?.models.find(({ id }) => id === $("model").value);
  if (chosen !== undefined && key !== "")
    for (const shelf of Object.values(shelves)) shelf.look(chosen.fingerprint).catch(() => shelf.away());
  const ready = key !== "" && connection.state !== "refused" && $("model").value !== "";
  $("key-form").hidden = key !== "" && connection.state !== "refused";
  $("suggestions").hidden = !ready;
  $("welcome").hidden = !chat.empty && connection.state !== "refused";
  $("legend").hidden = views.current === "left" || (chat.empty && views.current === "chat");
  const busy = chat.busy || race.busy;
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("send").textContent = views.current === "race" ? "Race" : "Ask";
  $("send").disabled = !ready || !able() || $("question").value.trim() === "";
  $("left-none").hidden = disclosure.entries.length > 0;
  if (views.current === "left") leftView.show(disclosure.entries);
  showChoices();
  $("leaves").textContent = leaves();
}

/** Whether the privacy mode can be had. */
function able() {
  return !needsModel($("privacy").value) || shelves.model.drafter !== null;
}

/** The one that the settings are about. */
function chosenShelf() {
  const { drafter, privacy } = settings();
  return drafter === "webllm" && !needsModel(privacy) && shelves.webllm.offered ? shelves.webllm : shelves.model;
}

function showConnection() {
  const model = connection.welcome?.models.find(({ id }) => id === $("model").value);
  const words = {
    idle: key === "" ? "Not connected" : "At rest",
    connecting: "Connecting …",
    open: model?.id ?? "Connected",
    waiting: `${connection.problem} Trying again …`,
    refused: "Not admitted",
  };
  $("connection").dataset.state = connection.state;
  // A status region speaks whenever it is written to: only when it changed.
  if ($("connection-text").textContent !== words[connection.state])
    $("connection-text").textContent = words[connection.state];
  // Beside the region, not in it: this changes every few seconds, and nobody wants to hear it.
  const away = connection.state === "open" && connection.roundTripMs !== null;
  $("trip").textContent = away ? `${Math.max(1, connection.roundTripMs).toFixed(0)} ms away` : "";
  $("key-hint").toggleAttribute("data-problem", connection.state === "refused");
  if (connection.state === "refused") $("key-hint").textContent = connection.problem;
}

function showModels() {
  const models = connection.welcome?.models ?? [];
  const ids = models.map(({ id }) => id);
  const shown = [...$("model").options].map(({ value }) => value);
  if (ids.join("\n") !== shown.join("\n"))
    $("model").replaceChildren(...ids.map((id) => make("option", { value: id }, id)));
  $("model").parentElement.hidden = ids.length < 2;
}

function showChoices() {
  const { drafter, policy, temperature, privacy } = settings();
  const ways = {
    ngram: `n-gram drafts · ${policy}`,
    model: `model drafts · ${policy}`,
    webllm: `GPU drafts · ${policy}`,
    none: "no drafts",
    cloud: "cloud only",
  };
  const way = { local: "this tab alone", draft_only: "drafts alone" }[privacy] ?? ways[drafter];
  $("settings-button").textContent = `${way} · T ${temperature}${privacy === "redacted" ? " · redacted" : ""}`;
  $("policy").disabled = needsModel(privacy) || ["none", "cloud"].includes(drafter);
  $("drafter").disabled = needsModel(privacy);
  $("drafter").querySelector("[value=model]").disabled = !shelves.model.offered;
  $("drafter").querySelector("[value=webllm]").hidden = !shelves.webllm.offered;
}

/** What a person should know before asking, and nothing that isn't so. */
function leaves() {
  const empty = settings().sizes === "padded" ? ", empty envelopes not counted" : "";
  const sent = disclosure.bytes ? ` Sent by this tab: ${bytes(disclosure.bytes).join(" ")}${empty}.` : "";
  return what() + sent;
}

function what() {
  const { drafter, privacy, sizes } = settings();
  if (needsModel(privacy) && shelves.model.drafter === null) return "The draft model is not here yet: this mode needs it.";
  if (privacy === "local") return "Nothing leaves: the small model in this tab answers alone, and nobody verifies it.";
  const redacted =
    privacy === "redacted"
      ? " Addresses, phone, card and account numbers and keys are replaced here first; names and places are not."
      : "";
  const hidden = sizes === "padded" ? " Sizes and times on the socket are padded." : "";
  if (privacy === "draft_only")
    return `The question stays here; its drafts go up as token ids, and tell what it is about.${hidden}`;
  if (drafter === "cloud") return `Your messages go to the gateway as text, and the answer comes from it.${redacted}`;
  const drafts = " Drafting can save time; it hides nothing.";
  return `Your messages go to the gateway as text, drafts as token ids: it can read both.${redacted || drafts}${hidden}`;
}

function ask(question) {
  if (chat.busy || race.busy || question.trim() === "" || $("model").value === "" || !able()) return;
  if (views.current === "race") race.run(question.trim());
  else {
    views.show("chat");
    chat.ask(question.trim());
  }
  $("question").value = "";
  follow(true);
}

/** Stay at the end of the conversation while it grows, unless the reader has gone up. */
let following = true;
function follow(always = false) {
  if (always) following = true;
  if (following && views.current === "chat" && !chat.empty) window.scrollTo({ top: document.documentElement.scrollHeight });
}

function listen() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    ask($("question").value);
  });
  $("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask($("question").value);
  });
  $("question").addEventListener("input", refresh);
  $("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  $("offer-load").addEventListener("click", () => {
    if (chosenShelf().state !== "ready") return chosenShelf().load();
    $("drafter").value = "model";
    $("settings").dispatchEvent(new Event("change"));
  });
  $("bench").addEventListener("click", () => showBench(!document.body.hasAttribute("data-bench")));
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    admit($("key").value.trim());
  });
  $("settings-button").addEventListener("click", () => {
    $("settings").hidden = !$("settings").hidden;
    $("settings-button").setAttribute("aria-expanded", String(!$("settings").hidden));
  });
  $("settings").addEventListener("change", () => {
    localStorage.setItem(SETTINGS, JSON.stringify(settings()));
    const wanted = $("drafter").value in shelves || needsModel($("privacy").value);
    if (wanted && chosenShelf().state === "offered") chosenShelf().load();
    connection.pad(padding());
    refresh();
  });
  $("theme").addEventListener("click", nextTheme);
  window.addEventListener("online", () => connection.hurry());
  window.addEventListener("offline", () => connection.doubt());
  window.addEventListener("pagehide", () => keepConversation());
  window.addEventListener("hashchange", () => {
    // Other fragments are places on the page.
    if (keyIn(location) !== "") admit(takeKey(location, history, sessionStorage));
  });
  window.addEventListener(
    "scroll",
    () => {
      const { scrollTop, scrollHeight, clientHeight } = document.documentElement;
      following = scrollHeight - scrollTop - clientHeight < 80;
      document.querySelector(".bar").toggleAttribute("data-scrolled", scrollTop > 4);
    },
    { passive: true },
  );
  new ResizeObserver(() => follow()).observe(document.body);
}

function showBench(open) {
  document.body.toggleAttribute("data-bench", open);
  $("bench").setAttribute("aria-expanded", String(open));
}

function stop() {
  chat.stop();
  race.stop();
}

/** For a reload: the conversation, and the answer under way, which the gateway goes on with. */
function keepConversation() {
  try {
    sessionStorage.setItem(CONVERSATION, JSON.stringify(chat.hold()));
  } catch (error) {
    if (error.name !== "QuotaExceededError") throw error;
    sessionStorage.removeItem(CONVERSATION); // too long to be kept: a reload begins anew
  }
}

function restoreConversation() {
  const kept = parsed(sessionStorage.getItem(CONVERSATION));
  sessionStorage.removeItem(CONVERSATION);
  if (kept !== null && kept.turns.length + Number(kept.running !== null) > 0) chat.restore(kept);
}

function admit(given) {
  if (given === "") return;
  key = given;
  connection.close();
  connection.connect().then(
    () => {
      keepKey(sessionStorage, key);
      $("question").focus();
    },
    (refused) => refused.key && forgetKey(sessionStorage),
  );
}

function restore() {
  const kept = parsed(localStorage.getItem(SETTINGS)) ?? {};
  const fields = {
    drafter: "drafter",
    policy: "policy",
    temperature: "temperature",
    length: "maxTokens",
    privacy: "privacy",
    sizes: "sizes",
  };
  for (const [id, name] of Object.entries(fields)) {
    const value = String(kept[name] ?? "");
    if ([...$(id).options].some((option) => option.value === value)) $(id).value = value;
  }
  connection.pad(padding());
  setTheme(localStorage.getItem("paceline.theme") ?? "system");
}

/** Null for what another version wrote, or a hand. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % names.length]);
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme").setAttribute("aria-label", `Colours: ${THEMES[name] ?? name}`);
  localStorage.setItem("paceline.theme", name);
  workbench.recolour();
}

function suggest(list) {
  for (const { title, detail, question } of SUGGESTIONS) {
    const button = make("button", { type: "button" });
    button.append(make("strong", {}, title), make("span", {}, detail));
    button.addEventListener("click", () => ask(question));
    const item = make("li");
    item.append(button);
    list.append(item);
  }
}

restore();
showBench(matchMedia("(min-width: 64rem)").matches);
suggest($("suggestions"));
suggest($("race-suggestions"));
listen();
refresh();
if (key !== "") {
  admit(key);
  restoreConversation();
}
