/**
 * The pipeline as a diagram of place and time: this tab above, the cloud in the middle, the text below.
 *
 *     tab      ▇▇ ▇▇ ▇▇ ▇▇     a block per token drafted, tinted by what became of it
 *                ╲  ╲            drafts on their way
 *     cloud       ▇▇▇▇▇ ▇▇▇▇▇   the target's steps
 *                      ╲     ╲   commits on their way
 *     text               |||    |  tokens that arrived
 */

const HEIGHT = 178;
const LEFT = 46;
const RIGHT = 10;
const LANES = { tab: [6, 22], cloud: [66, 26], text: [130, 22] };
const AXIS = 168;
/** What is seen at once, ms. */
export const SPAN_MS = 2500;
const TICKS_MS = 500;

export class Lanes {
  #canvas;
  #colours = {};
  #shapes = [];

  constructor(canvas) {
    this.#canvas = canvas;
    canvas.style.height = `${HEIGHT}px`;
  }

  /** Custom properties hold light-dark() pairs: only a computed colour says which one it is. */
  readColours() {
    const probe = document.createElement("span");
    this.#canvas.parentElement.append(probe);
    for (const name of ["accent", "accepted-line", "corrected-line", "faint", "soft", "line", "ink", "on-step", "sunken"]) {
      probe.style.color = `var(--${name})`;
      this.#colours[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }

  /** Draw what happened in the SPAN_MS before `end`. */
  draw(trace, end) {
    const { clientWidth: width } = this.#canvas;
    const ratio = window.devicePixelRatio || 1;
    if (this.#canvas.width !== Math.round(width * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(HEIGHT * ratio);
    }
    const pen = this.#canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    pen.font = `11px ${getComputedStyle(this.#canvas).fontFamily}`;
    this.#shapes = [];
    const begin = end - SPAN_MS;
    const x = (at) => LEFT + ((at - begin) / SPAN_MS) * (width - LEFT - RIGHT);
    this.#frame(pen, width);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT - RIGHT, HEIGHT);
    pen.clip();
    this.#axis(pen, x, begin, end, trace.startedAt);
    const seen = (event) => (event.until ?? event.at) >= begin && (event.began ?? event.left ?? event.at) <= end;
    trace.flights.filter(seen).forEach((flight) => this.#flight(pen, x, flight));
    trace.commits.filter(seen).forEach((commit) => this.#commit(pen, x, commit, end));
    trace.drafts.filter(seen).forEach((draft) => this.#draft(pen, x, draft));
    trace.steps.filter(seen).forEach((step) => this.#step(pen, x, step));
    pen.restore();
  }

  /** What is drawn at a point of the canvas, in words; null where nothing is. */
  at(x, y) {
    const found = this.#shapes.findLast(
      ({ box: [left, top, width, height] }) =>
        x >= left - 2 && x <= left + width + 2 && y >= top - 2 && y <= top + height + 2,
    );
    return found?.words ?? null;
  }

  #frame(pen, width) {
    const names = { tab: "tab", cloud: "cloud", text: "text" };
    for (const [lane, [top, height]] of Object.entries(LANES)) {
      pen.fillStyle = this.#colours.sunken;
      pen.beginPath();
      pen.roundRect(LEFT, top - 3, width - LEFT - RIGHT, height + 6, 5);
      pen.fill();
      pen.fillStyle = this.#colours.soft;
      pen.fillText(names[lane], 4, top + height / 2 + 4);
    }
  }

  #axis(pen, x, begin, end, startedAt) {
    pen.fillStyle = this.#colours.faint;
    pen.strokeStyle = this.#colours.line;
    pen.lineWidth = 1;
    const first = Math.ceil((begin - startedAt) / TICKS_MS) * TICKS_MS;
    for (let t = Math.max(0, first); startedAt + t <= end; t += TICKS_MS) {
      const at = Math.round(x(startedAt + t)) + 0.5;
      line(pen, at, LANES.tab[0], at, AXIS - 12);
      pen.fillText(`${(t / 1000).toFixed(1)} s`, at + 3, AXIS + 6);
    }
  }

  #draft(pen, x, { began, at, text, fate }) {
    const [top, height] = LANES.tab;
    const colour = { accepted: "accepted-line", late: "faint", rolled: "corrected-line" }[fate] ?? "soft";
    const box = [x(began), top, Math.max(2.5, x(at) - x(began) - 1), height];
    this.#block(pen, box, this.#colours[colour], fate === undefined ? 0.35 : 0.85);
    const became = {
      accepted: "accepted",
      late: "right, but late: the cloud was quicker",
      rolled: "rolled back",
    };
    const words = `draft ${quoted(text)}, ${(at - began).toFixed(0)} ms: ${became[fate] ?? "not yet answered"}`;
    this.#shapes.push({ box, words });
  }

  #flight(pen, x, { at, until, type, bytes, texts }) {
    const [from, to] = [LANES.tab[0] + LANES.tab[1] + 3, LANES.cloud[0] - 3];
    pen.strokeStyle = this.#colours[type === "draft" ? "accent" : "faint"];
    pen.globalAlpha = 0.75;
    pen.lineWidth = 1.25;
    line(pen, x(at), from, x(until), to);
    pen.globalAlpha = 1;
    const what = type === "draft" ? `${texts.length} drafted, on their way up` : `${type}, on its way up`;
    this.#shapes.push({ box: [x(at) - 2, from, x(until) - x(at) + 4, to - from], words: `${what}: ${bytes} bytes` });
  }

  #step(pen, x, { began, at, queueMs, tokens }) {
    const [top, height] = LANES.cloud;
    const box = [x(began), top, Math.max(2, x(at) - x(began) - 1.5), height];
    const strength = 0.28 + 0.16 * Math.min(4, tokens - 1);
    this.#block(pen, box, this.#colours.accent, strength);
    if (tokens > 1 && box[2] > 12) {
      pen.fillStyle = this.#colours[strength > 0.5 ? "on-step" : "ink"];
      pen.fillText(String(tokens), box[0] + box[2] / 2 - 3, top + height / 2 + 4);
    }
    const waited = queueMs >= 1 ? `, after ${queueMs.toFixed(0)} ms in the queue` : "";
    const count = tokens === 1 ? "1 token" : `${tokens} tokens`;
    this.#shapes.push({ box, words: `one step of the target, ${(at - began).toFixed(0)} ms${waited}: ${count}` });
  }

  #commit(pen, x, { at, left, texts, agreed, accepted, rolledBack, bytes }, end) {
    const [from, to] = [LANES.cloud[0] + LANES.cloud[1] + 3, LANES.text[0] - 3];
    pen.strokeStyle = this.#colours.faint;
    pen.globalAlpha = 0.6;
    pen.lineWidth = 1;
    line(pen, x(left), from, x(at), to);
    pen.globalAlpha = 1;
    const [top, height] = LANES.text;
    texts.forEach((_, index) => {
      const corrected = index === agreed && rolledBack.length > 0;
      const colour = index < accepted ? "accepted-line" : corrected ? "corrected-line" : "faint";
      this.#block(pen, [x(at) + index * 4, top, 3, height], this.#colours[colour], 0.95);
    });
    if (at > end) return;
    const gone = rolledBack.length > 0 ? `; rolled back: ${quoted(rolledBack.join(""))}` : "";
    const words = `arrived: ${quoted(texts.join(""))}, ${accepted} of ${texts.length} drafted, ${bytes} bytes${gone}`;
    this.#shapes.push({ box: [x(at), top, Math.max(4, texts.length * 4), height], words });
  }

  #block(pen, [left, top, width, height], colour, alpha) {
    pen.fillStyle = colour;
    pen.globalAlpha = alpha;
    pen.beginPath();
    pen.roundRect(left, top, width, height, Math.min(2.5, width / 2));
    pen.fill();
    pen.globalAlpha = 1;
  }
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

function quoted(text) {
  const short = (text ?? "·").slice(0, 40).replace(/\n/g, "⏎");
  return `“${short}”`;
}
