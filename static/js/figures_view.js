/** Figures and comparison as elements. Numbers only; what they mean is in figures.js and in the titles here. */

import { make } from "./make.js";

const NONE = "–";

const EXPLAINED = {
  itl: "Inter-token latency: (last − first token’s arrival) / (tokens − 1), measured in this tab",
  ttft: "Time from asking to the first token",
  alpha: "Acceptance rate: of the drafts that met the target’s token, the share that agreed",
  steps: "Steps of the target model for each token of text: the cloud alone needs one",
  bytes: "Bytes of frames up and down for each token of text",
  tokens: "Tokens of text; a draft is none until it is accepted",
};

export function milliseconds(value) {
  if (value === null) return [NONE, ""];
  return value >= 10_000 ? [(value / 1000).toFixed(1), "s"] : [value < 10 ? value.toFixed(1) : value.toFixed(0), "ms"];
}

export function ratio(value) {
  return value === null ? [NONE, ""] : [value.toFixed(2), ""];
}

export function bytes(value) {
  if (value === null) return [NONE, ""];
  return value < 1000 ? [value.toFixed(0), "B"] : [(value / 1000).toFixed(1), "kB"];
}

/**
 * @param {{figures: object, alpha: number | null, usage: object | null, answered: string}} measured
 * @returns {HTMLElement}
 */
export function figuresView({ figures, alpha, usage }) {
  const list = make("dl", { class: "figures" });
  const add = (key, label, [value, unit]) => {
    const cell = make("div", { title: EXPLAINED[key], "data-figure": key });
    const number = make("dd", {}, value);
    if (unit !== "") number.append(make("small", {}, unit));
    cell.append(make("dt", {}, label), number);
    list.append(cell);
  };
  add("itl", "per token (ITL)", milliseconds(figures.itlMs));
  add("ttft", "to first token", milliseconds(figures.ttftMs));
  add("alpha", "acceptance α", ratio(alpha));
  add("steps", "steps per token", ratio(stepsPerToken(usage)));
  add("bytes", "up · down per token", perToken(figures));
  add("tokens", "tokens", [String(figures.tokens), ""]);
  return list;
}

export function stepsPerToken(usage) {
  return usage?.completion ? usage.steps / usage.completion : null;
}

function perToken(figures) {
  if (figures.bytesUpPerToken === null) return [NONE, ""];
  return [`${figures.bytesUpPerToken.toFixed(0)} · ${figures.bytesDownPerToken.toFixed(0)}`, "B"];
}

/**
 * Hybrid and cloud-only answers to one question under one seed, side by side. No time to first token: the gateway still
 * holds the prompt of the first when the second asks, so it would be no comparison.
 */
export function comparisonView(hybrid, cloud) {
  const table = make("table", { class: "comparison" });
  const same = hybrid.content === cloud.content;
  const caption = make("caption");
  caption.append(make("strong", {}, same ? "The same text, character for character." : "The texts differ."));
  caption.append(same ? "" : ` From character ${firstDifference(hybrid.content, cloud.content) + 1} on.`);
  caption.dataset.same = String(same);
  const head = make("thead");
  head.append(tableRow("th", ["the same question", "per token", "steps per token"]));
  const body = make("tbody");
  body.append(
    tableRow("td", ["Hybrid", plain(milliseconds(hybrid.figures.itlMs)), plain(ratio(hybrid.steps))]),
    tableRow("td", ["Cloud only", plain(milliseconds(cloud.figures.itlMs)), "1.00"]),
  );
  table.append(caption, head, body);
  return table;
}

/** A row of `th` or `td`; the first cell is a heading either way. */
function tableRow(tag, [first, ...rest]) {
  const row = make("tr");
  row.append(make("th", { scope: tag === "th" ? "col" : "row" }, first));
  for (const value of rest) row.append(make(tag, tag === "th" ? { scope: "col" } : {}, value));
  return row;
}

function plain([value, unit]) {
  return unit === "" ? value : `${value} ${unit}`;
}

function firstDifference(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  return i;
}
