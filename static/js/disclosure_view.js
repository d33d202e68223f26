/** The record of what left, as elements; what is open stays open while it grows. */

import { bytes } from "./figures_view.js";
import { make } from "./make.js";
import { visible } from "./text.js";

const MODES = {
  full: "full: text and drafts go up",
  redacted: "redacted: personal data was replaced here first",
  draft_only: "draft_only: no token of the question; the drafts tell of it all the same",
  local: "local: nothing left this device",
};
/** What `open` holds where it holds no question. */
const NO_QUESTION = "which model, how long and how sampled, to open the stream";
const KINDS = {
  open: "the question and what came before it, to open the stream",
  draft: "drafted tokens, as ids",
  cancel: "a request to stop",
  resume: "a request to go on after a lost connection",
  http: "the same question over HTTP, for comparison",
};

export class DisclosureView {
  #list;
  #shown = new Map();

  constructor(list) {
    this.#list = list;
  }

  show(entries) {
    entries.forEach((entry) => {
      if (!this.#shown.has(entry)) this.#add(entry);
      this.#fill(entry, this.#shown.get(entry));
    });
  }

  #add(entry) {
    const details = make("details", { class: "left" });
    const summary = make("summary");
    const body = make("div", { class: "left-body" });
    details.append(summary, body);
    details.open = true;
    for (const [earlier] of this.#shown.values()) earlier.open = false;
    this.#list.prepend(details);
    this.#shown.set(entry, [details, summary, body]);
  }

  #fill(entry, [, summary, body]) {
    const [value, unit] = bytes(entry.bytes);
    summary.replaceChildren(
      make("strong", {}, visible(entry.question.slice(0, 90))),
      make("span", {}, MODES[entry.mode]),
      make("span", { class: "amount" }, `${value} ${unit} up`),
    );
    const rows = [...entry.kinds].map(([kind, { frames, bytes: size, tokens }]) => {
      const row = make("tr");
      const holds = kind === "open" && entry.mode === "draft_only" ? NO_QUESTION : KINDS[kind];
      row.append(make("th", { scope: "row" }, kind), make("td", {}, holds ?? ""));
      for (const number of [frames, tokens || "", size]) row.append(make("td", { class: "number" }, String(number)));
      return row;
    });
    const table = make("table");
    const head = make("tr");
    for (const name of ["frame", "what it holds", "frames", "tokens", "bytes"])
      head.append(make("th", { scope: "col" }, name));
    table.append(head, ...rows);
    body.replaceChildren(table);
    if (entry.kept.length > 0) body.append(block("Kept back", entry.kept.map(([sign, text]) => `${sign} for ${text}`).join("\n")));
    if (entry.messages.length > 0)
      body.append(block("Messages, as the gateway reads them", entry.messages.map(({ role, content }) => `${role}: ${content}`).join("\n\n")));
    if (entry.drafts.length > 0) body.append(block("Drafts, as the gateway can decode them", entry.drafts.join(" │ ")));
    if (entry.kinds.size === 0) body.replaceChildren(make("p", {}, "Nothing."));
  }
}

function block(title, text) {
  const part = make("div");
  part.append(make("h3", {}, title), make("pre", { tabindex: "0", role: "region", "aria-label": title }, visible(text)));
  return part;
}
