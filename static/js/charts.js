/** Four small charts of one stream, by uPlot: gaps, α by position, window, bytes. */

import { charts } from "./libraries.js";
import { make } from "./make.js";

const HEIGHT = 118;

/** Each: title, what it says to whom can't see it, and series from a trace: [xs, ys, ys …]. */
const CHARTS = [
  {
    title: "Gap per token, ms",
    labels: ["ms"],
    series: ({ commits, startedAt }) => {
      const gaps = commits.slice(1).map((commit, i) => (commit.at - commits[i].at) / Math.max(1, commit.texts.length));
      return [commits.slice(1).map(({ at }) => (at - startedAt) / 1000), gaps];
    },
  },
  {
    title: "α by distance from the head",
    labels: ["α"],
    bars: true,
    range: [0, 1],
    series: ({ compared, agreed }) => [compared.map((_, depth) => depth + 1), compared.map((n, i) => agreed[i] / n)],
  },
  {
    title: "Window, tokens",
    labels: ["ahead"],
    stepped: true,
    series: ({ windows, commits, startedAt }) => {
      if (windows.length === 0) return [[], []];
      const end = Math.max(windows.at(-1).at, commits.at(-1)?.at ?? 0);
      const all = [...windows, { at: end, ahead: windows.at(-1).ahead }];
      return [all.map(({ at }) => (at - startedAt) / 1000), all.map(({ ahead }) => ahead)];
    },
  },
  {
    title: "Bytes,",
    labels: ["up", "down"],
    series: ({ traffic, startedAt }) => [
      traffic.map(({ at }) => (at - startedAt) / 1000),
      traffic.map(({ up }) => up),
      traffic.map(({ down }) => down),
    ],
  },
];

export class Charts {
  #element;
  #plots = [];
  #Plot = null;

  /** @param {HTMLElement} element what they are put in */
  constructor(element) {
    this.#element = element;
  }

  /** Draw `trace`; the first call loads the library. False if this gateway doesn't have it. */
  async show(trace, colours) {
    this.#Plot ??= await charts();
    if (this.#Plot === null) return false;
    if (this.#plots.length === 0) this.#plots = CHARTS.map((chart) => this.#plot(chart, colours));
    CHARTS.forEach(({ series }, i) => this.#plots[i].setData(series(trace)));
    return true;
  }

  /** Colours or width have changed: they are made anew when next shown. */
  reset() {
    for (const plot of this.#plots.splice(0)) plot.destroy();
    this.#element.replaceChildren();
  }

  #plot({ title, labels, bars, stepped, range }, colours) {
    const figure = make("figure", { class: "chart" });
    const caption = make("figcaption", {}, title);
    if (labels.length > 1) for (const [i, label] of labels.entries()) caption.append(" ", make("span", { "data-series": i }, label));
    figure.append(caption);
    this.#element.append(figure);
    const axis = {
      stroke: colours.soft,
      font: "10px Inter, system-ui, sans-serif",
      grid: { stroke: colours.line, width: 0.5 },
      ticks: { show: false },
    };
    const strokes = [colours.accepted, colours.corrected];
    const paths = bars ? this.#Plot.paths.bars({ size: [0.7, 22] }) : undefined;
    const lines = stepped ? this.#Plot.paths.stepped({ align: 1 }) : paths;
    return new this.#Plot(
      {
        width: figure.clientWidth,
        height: HEIGHT,
        padding: [6, 4, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: bars ? (_, low, high) => [low - 0.6, high + 0.6] : undefined },
          y: { range: range ?? ((_, low, high) => [Math.min(0, low), high * 1.1 || 1]) },
        },
        axes: [
          { ...axis, size: 22, gap: 3, space: bars ? 24 : 46, incrs: bars ? [1, 2, 4, 8, 16, 32] : undefined },
          { ...axis, size: 34, gap: 3, space: 26 },
        ],
        series: [
          {},
          ...labels.map((label, i) => ({
            label,
            stroke: strokes[i],
            width: 1.5,
            paths: lines,
            fill: bars ? colours.fill : undefined,
            points: { show: false },
          })),
        ],
      },
      labels.map(() => []).concat([[]]),
      figure,
    );
  }
}
