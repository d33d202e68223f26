/** One picture of the gateway on the page. Streams are drawn on a canvas: a thousand elements a second would be jank. */

import { charts } from "./libraries.js";
import { make } from "./make.js";
import { fitRoofline, stepMs } from "./roofline.js";

/** Pictures kept, one a second. */
const KEPT = 300;
/** Samples of steps kept for the fit. */
const SAMPLES = 600;
/** Pictures that the rate of tokens is taken over. */
const RATE_OVER = 5;
const SQUARE = 13;
const GAP = 3;
const HEIGHT = 170;

export class Board {
  #$;
  #history = [];
  #samples = [];
  #plots = null;
  #recent = [];
  #cells = [];

  /** @param {(id: string) => HTMLElement} $ */
  constructor($) {
    this.#$ = $;
    $("streams").addEventListener("pointermove", (event) => this.#explain(event));
    $("streams").addEventListener("pointerleave", () => ($("stream").textContent = ""));
  }

  show(picture) {
    const { load } = picture;
    this.#history = [...this.#history, { at: picture.at, running: load.running, waiting: load.waiting }].slice(-KEPT);
    const newest = this.#samples.at(-1);
    const [tokens, ms] = load.last_step;
    if (tokens > 0 && (newest?.tokens !== tokens || newest?.ms !== ms))
      this.#samples = [...this.#samples, { tokens, ms }].slice(-SAMPLES);
    this.#tiles(picture);
    this.#$("alarm").hidden = picture.failure === null;
    this.#$("alarm").textContent = picture.failure === null ? "" : `The engine has failed: ${picture.failure}`;
    this.#streams(picture);
    this.#tenants(picture);
    this.#faults(picture);
    this.#replicas(picture);
    this.#draw(picture);
    this.#recent = [...this.#recent, picture].slice(-RATE_OVER);
  }

  #tiles(picture) {
    const { load, slots, queue_limit: limit, streams, tokens } = picture;
    const sums = total(streams);
    const rate = this.#recent.length === 0 ? null : perSecond(this.#recent[0], picture);
    const facts = [
      ["in the batch", `${load.running}`, `of ${slots}`],
      ["in the queue", `${load.waiting}`, `of ${limit}`],
      ["KV cache", `${share(load.context_used, load.context_total)}`, "%"],
      ["step", load.step_ms.toFixed(0), "ms"],
      ["tokens now", rate === null ? "–" : rate.toFixed(0), "/s"],
      ["α, of checked drafts", sums.verified ? (sums.accepted / sums.verified).toFixed(2) : "–", ""],
      ["finished since start", compact(tokens.completion), "tokens"],
    ];
    this.#$("tiles").replaceChildren(
      ...facts.map(([name, value, unit]) => {
        const tile = make("div");
        const number = make("dd", {}, value);
        if (unit !== "") number.append(make("small", {}, unit));
        tile.append(make("dt", {}, name), number);
        return tile;
      }),
    );
  }

  #streams({ streams, streams_total: count }) {
    const canvas = this.#$("streams");
    this.#$("streams-count").textContent = count > streams.length ? `${count}, ${streams.length} shown` : `${count}`;
    const width = canvas.clientWidth;
    const columns = Math.max(1, Math.floor((width + GAP) / (SQUARE + GAP)));
    const rows = Math.max(1, Math.ceil(streams.length / columns));
    const ratio = window.devicePixelRatio || 1;
    const height = rows * (SQUARE + GAP);
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const colours = coloursOf(canvas);
    this.#cells = streams.map((stream, i) => {
      const [x, y] = [(i % columns) * (SQUARE + GAP), Math.floor(i / columns) * (SQUARE + GAP)];
      pen.fillStyle = colours.track;
      pen.fillRect(x, y, SQUARE, SQUARE);
      const filled = SQUARE * Math.min(1, stream.length / Math.max(1, stream.limit));
      pen.fillStyle = stream.kind === "parked" ? colours.parked : colours.run;
      pen.globalAlpha = stream.verified ? 0.35 + 0.65 * (stream.accepted / stream.verified) : 0.35;
      pen.fillRect(x, y + SQUARE - filled, SQUARE, filled);
      pen.globalAlpha = 1;
      return { x, y, stream };
    });
  }

  #explain({ offsetX, offsetY }) {
    const found = this.#cells.find(({ x, y }) => offsetX >= x && offsetX < x + SQUARE + GAP && offsetY >= y && offsetY < y + SQUARE + GAP);
    this.#$("stream").textContent = found === undefined ? "" : describe(found.stream);
  }

  #tenants({ streams }) {
    const groups = new Map();
    for (const stream of streams) {
      if (!groups.has(stream.tenant)) groups.set(stream.tenant, []);
      groups.get(stream.tenant).push(stream);
    }
    const rows = [...groups]
      .sort(([, a], [, b]) => b.length - a.length)
      .slice(0, 20)
      .map(([tenant, own]) => {
        const sums = total(own);
        const alpha = sums.verified ? (sums.accepted / sums.verified).toFixed(2) : "–";
        return [tenant, own.length, sums.length, sums.drafted, alpha];
      });
    table(this.#$("tenants"), ["tenant", "streams", "tokens", "drafted", "α"], rows, "No stream runs.");
  }

  #faults({ faults }) {
    const rows = faults.slice(0, 12).map(({ at, where, code }) => [new Date(at * 1000).toLocaleTimeString(), code, where]);
    table(this.#$("faults"), ["when", "code", "where"], rows, "None since the start.");
  }

  #replicas({ replicas }) {
    this.#$("replicas-section").hidden = replicas.length === 0;
    const rows = replicas.map(({ index, state, streams, restarts, load, fault }) => [
      index,
      state,
      streams,
      `${load.step_ms.toFixed(0)} ms`,
      restarts,
      fault ?? "",
    ]);
    table(this.#$("replicas"), ["replica", "state", "streams", "step", "restarts", "fault"], rows, "");
  }

  async #draw({ slots }) {
    const Plot = await charts();
    if (Plot === null) {
      this.#$("batch").textContent = "Charts need uPlot: run `make page` on the gateway.";
      return;
    }
    this.#plots ??= makePlots(Plot, this.#$, slots);
    const last = this.#history.at(-1).at;
    this.#plots.batch.setData([
      this.#history.map(({ at }) => (at - last) / 60),
      this.#history.map(({ running }) => running),
      this.#history.map(({ waiting }) => waiting),
    ]);
    const fit = fitRoofline(this.#samples);
    const sorted = [...this.#samples].sort((a, b) => a.tokens - b.tokens);
    this.#plots.steps.setData([
      sorted.map(({ tokens }) => tokens),
      sorted.map(({ ms }) => ms),
      sorted.map(({ tokens }) => (fit === null ? null : stepMs(fit, tokens))),
    ]);
    this.#$("fit").textContent =
      fit === null
        ? "Too few steps yet for a fit."
        : `Fitted roofline of ${sorted.length} steps: ${fit.floorMs.toFixed(1)} ms at least` +
          (fit.perTokenMs > 0 ? `, ${fit.perTokenMs.toFixed(2)} ms a token beyond.` : "; steps were too alike for a slope.");
  }
}

function makePlots(Plot, $, slots) {
  const style = coloursOf($("streams"));
  const axis = {
    stroke: style.soft,
    font: "10px Inter, system-ui, sans-serif",
    grid: { stroke: style.line, width: 0.5 },
    ticks: { show: false },
  };
  const common = (element) => ({
    width: element.clientWidth,
    height: HEIGHT,
    padding: [6, 8, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    axes: [
      { ...axis, size: 22, gap: 3 },
      { ...axis, size: 40, gap: 3 },
    ],
  });
  const line = (stroke) => ({ stroke, width: 1.5, points: { show: false } });
  const most = (least) => (_, __, high) => [0, Math.max(least, high * 1.15)];
  const x = { time: false };
  const batch = new Plot(
    { ...common($("batch")), scales: { x: { ...x, range: [-KEPT / 60, 0] }, y: { range: most(slots) } }, series: [{}, line(style.run), line(style.parked)] },
    [[], [], []],
    $("batch"),
  );
  const dots = { stroke: style.run, paths: () => null, points: { show: true, size: 4, fill: style.run } };
  const steps = new Plot(
    { ...common($("steps")), scales: { x: { ...x, range: most(4) }, y: { range: most(10) } }, series: [{}, dots, line(style.parked)] },
    [[], [], []],
    $("steps"),
  );
  return { batch, steps };
}

/** From properties of the element that have no effect on it: canvases can't read custom ones, and these are computed. */
function coloursOf(element) {
  const style = getComputedStyle(element);
  return {
    run: style.color,
    track: style.caretColor,
    parked: style.outlineColor,
    soft: style.textDecorationColor,
    line: style.borderTopColor,
  };
}

function total(streams) {
  const sums = { length: 0, drafted: 0, verified: 0, accepted: 0 };
  for (const stream of streams) for (const name of Object.keys(sums)) sums[name] += stream[name];
  return sums;
}

/** Tokens of streams that run in both pictures; those that began or ended between are left out. */
function perSecond(before, now) {
  const lengths = new Map(before.streams.map(({ id, length }) => [id, length]));
  const grown = now.streams.reduce((sum, { id, length }) => sum + (lengths.has(id) ? length - lengths.get(id) : 0), 0);
  return grown / Math.max(0.1, now.at - before.at);
}

function describe({ id, tenant, kind, policy, prompt, length, limit, steps, drafted, accepted, matched }) {
  return (
    `${id}, ${tenant}, ${kind}, ${policy}: prompt ${prompt}, ${length} of ${limit} tokens in ${steps} steps;` +
    ` ${drafted} drafted, ${accepted} accepted, ${matched} right but late`
  );
}

function table(element, names, rows, empty) {
  if (rows.length === 0) return element.replaceChildren(make("caption", {}, empty));
  const head = make("tr");
  head.append(...names.map((name) => make("th", { scope: "col" }, name)));
  element.replaceChildren(
    head,
    ...rows.map((cells) => {
      const row = make("tr");
      row.append(...cells.map((cell) => make("td", typeof cell === "number" ? { class: "number" } : {}, String(cell))));
      return row;
    }),
  );
}

function share(part, whole) {
  return whole > 0 ? ((100 * part) / whole).toFixed(0) : "0";
}

function compact(count) {
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(count);
}
