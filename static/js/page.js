/** Wiring: credentials, connection, composer, settings. Nothing here knows how a stream works. */

import { make } from "./answer.js";
import { Chat } from "./chat.js";
import { Connection } from "./connection.js";
import { buyTicket, forgetKey, keepKey, keyIn, takeKey } from "./credentials.js";
import { bytes } from "./figures_view.js";

const SETTINGS = "paceline.settings";
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

const connection = new Connection({
  url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/verify`,
  ticket: () => buyTicket(key),
  notify: () => queueMicrotask(refresh),
});
const chat = new Chat({
  turns: $("turns"),
  connection,
  key: () => key,
  settings,
  announce: (text) => ($("announcer").textContent = text),
  notify: () => queueMicrotask(refresh),
});

function settings() {
  return {
    drafter: $("drafter").value,
    policy: $("policy").value,
    temperature: Number($("temperature").value),
    maxTokens: Number($("length").value),
    model: $("model").value,
  };
}

function refresh() {
  showConnection();
  showModels();
  const ready = key !== "" && connection.state !== "refused" && $("model").value !== "";
  $("key-form").hidden = key !== "" && connection.state !== "refused";
  $("suggestions").hidden = !ready;
  $("welcome").hidden = !chat.empty && connection.state !== "refused";
  $("legend").hidden = chat.empty;
  $("send").hidden = chat.busy;
  $("stop").hidden = !chat.busy;
  $("send").disabled = !ready || $("question").value.trim() === "";
  showChoices();
  $("leaves").textContent = leaves();
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
  const { drafter, policy, temperature } = settings();
  const way = { ngram: `n-gram drafts · ${policy}`, none: "no drafts", cloud: "cloud only" }[drafter];
  $("settings-button").textContent = `${way} · T ${temperature}`;
  $("policy").disabled = drafter !== "ngram";
}

/** What a person should know before asking, and nothing that isn't so. */
function leaves() {
  const what =
    $("drafter").value === "cloud"
      ? "Your messages go to the gateway as text, and the answer comes from it."
      : "Your messages go to the gateway as text, drafts as token ids: it can read both." +
        " Drafting can save time; it hides nothing.";
  const sent = chat.bytesUp
    ? ` Sent by this tab: ${bytes(chat.bytesUp).join(" ")}, received: ${bytes(chat.bytesDown).join(" ")}.`
    : "";
  return what + sent;
}

function ask(question) {
  if (chat.busy || question.trim() === "" || $("model").value === "") return;
  chat.ask(question.trim());
  $("question").value = "";
  follow(true);
}

/** Stay at the end while the answer grows, unless the reader has gone up. */
let following = true;
function follow(always = false) {
  if (always) following = true;
  if (following) window.scrollTo({ top: document.documentElement.scrollHeight });
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
  $("stop").addEventListener("click", () => chat.stop());
  document.addEventListener("keydown", (event) => event.key === "Escape" && chat.stop());
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
    refresh();
  });
  $("theme").addEventListener("click", nextTheme);
  window.addEventListener("online", () => connection.hurry());
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
  const kept = keptSettings();
  const fields = { drafter: "drafter", policy: "policy", temperature: "temperature", length: "maxTokens" };
  for (const [id, name] of Object.entries(fields)) {
    const value = String(kept[name] ?? "");
    if ([...$(id).options].some((option) => option.value === value)) $(id).value = value;
  }
  setTheme(localStorage.getItem("paceline.theme") ?? "system");
}

function keptSettings() {
  try {
    return JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    return {}; // written by another version, or by hand
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
}

function suggest() {
  for (const { title, detail, question } of SUGGESTIONS) {
    const button = make("button", { type: "button" });
    button.append(make("strong", {}, title), make("span", {}, detail));
    button.addEventListener("click", () => ask(question));
    const item = make("li");
    item.append(button);
    $("suggestions").append(item);
  }
}

restore();
suggest();
listen();
refresh();
if (key !== "") admit(key);
