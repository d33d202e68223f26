/** The panel beside the conversation: lanes, charts, and a network that can be made worse. */

import { Charts } from "./charts.js";
import { exampleTrace } from "./example.js";
import { Lanes, SPAN_MS } from "./lanes.js";

/** Charts are redrawn this often while a stream runs, ms; the lanes with every frame. */
const CHARTS_MS = 250;

export class Workbench {
  #lanes;
  #charts;
  #parts;
  #network;
  #trace = exampleTrace();
  #example = true;
  #paused = false;
  #frame = null;
  #chartsAt = -Infinity;

  /** @param {{parts: Record<string, HTMLElement>, network: object, onNetwork: () => void}} options */
  constructor({ parts, network, onNetwork }) {
    this.#parts = parts;
    this.#network = network;
    this.#lanes = new Lanes(parts.lanes);
    this.#charts = new Charts(parts.charts);
    for (const name of ["rtt", "jitter"]) parts[name].addEventListener("input", () => this.#changeNetwork(onNetwork));
    parts.pause.addEventListener("click", () => this.#pause(!this.#paused));
    parts.time.addEventListener("input", () => this.#pause(true));
    parts.lanes.addEventListener("pointermove", (event) => this.#explain(event));
    parts.lanes.addEventListener("pointerleave", () => (parts.detail.textContent = parts.detail.dataset.idle));
    new ResizeObserver(() => this.recolour()).observe(parts.lanes);
  }

  /** Follow a stream from now on. */
  follow(trace) {
    this.#trace = trace;
    this.#example = false;
    this.#pause(false);
    this.#parts.empty.hidden = true;
    this.recolour();
  }

  /** The theme or the width has changed. */
  recolour() {
    this.#lanes.readColours();
    this.#charts.reset();
    this.#chartsAt = -Infinity;
    this.#frame ??= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = null;
    const trace = this.#trace;
    if (this.#parts.lanes.clientWidth === 0) return;
    const now = performance.now();
    const first = trace.startedAt + SPAN_MS;
    const last = Math.max(first, trace.endedAt === null ? now : trace.endedAt + SPAN_MS * 0.04);
    this.#parts.time.max = String(Math.round(last - first));
    if (!this.#paused) this.#parts.time.value = this.#parts.time.max;
    this.#parts.time.hidden = last === first;
    this.#lanes.draw(trace, first + Number(this.#parts.time.value));
    if (!this.#example && (now - this.#chartsAt > CHARTS_MS || trace.endedAt !== null)) {
      this.#chartsAt = now;
      this.#showCharts(trace);
    }
    if (trace.endedAt === null) this.#frame = requestAnimationFrame(() => this.#draw());
    else this.#parts.pause.hidden = true;
  }

  async #showCharts(trace) {
    const style = getComputedStyle(this.#parts.palette);
    const [soft, line] = [style.color, style.borderTopColor];
    const [accepted, corrected, fill] = [style.outlineColor, style.textDecorationColor, style.backgroundColor];
    const shown = await this.#charts.show(trace, { soft, line, accepted, corrected, fill });
    if (!shown) this.#parts.charts.textContent = "Charts need uPlot: run `make page` on the gateway.";
  }

  #pause(paused) {
    this.#paused = paused;
    this.#parts.pause.hidden = this.#trace.endedAt !== null;
    this.#parts.pause.textContent = paused ? "Go on" : "Pause";
    this.#parts.pause.setAttribute("aria-pressed", String(paused));
    this.#frame ??= requestAnimationFrame(() => this.#draw());
  }

  #explain({ offsetX, offsetY }) {
    this.#parts.detail.textContent = this.#lanes.at(offsetX, offsetY) ?? this.#parts.detail.dataset.idle;
  }

  #changeNetwork(onNetwork) {
    const { rtt, jitter, distance } = this.#parts;
    this.#network.rttMs = Number(rtt.value);
    this.#network.jitterMs = Number(jitter.value);
    const spread = this.#network.jitterMs > 0 ? `, up to ${jitter.value} ms of jitter each way` : "";
    distance.textContent = this.#network.rttMs + this.#network.jitterMs > 0 ? `+ ${rtt.value} ms${spread}` : "as it is";
    onNetwork();
  }
}
