/** A race's result as a picture: drawn here, saved here, sent nowhere. */

const [WIDTH, HEIGHT, EDGE] = [1200, 630, 72];
const INK = { paper: "#faf9f6", ink: "#1a1c1d", soft: "#5b5f61", line: "#dfdbd2" };
const BARS = { cloud: "#a9aaa6", sync: "#c98a4b", hybrid: "#0b6b63" };
const SANS = "Inter, system-ui, sans-serif";

/** @param {{question: string, same: boolean, network: object, temperature: number, model: string, drafter: string, runs: object[]}} race */
export function drawCard(race) {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d");
  pen.fillStyle = INK.paper;
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  drawMark(pen, EDGE, 72);
  write(pen, "Paceline", EDGE + 40, 92, `650 26px ${SANS}`, INK.ink);
  const title = race.same ? "One question, one seed, the same text three times" : "One question, one seed";
  write(pen, title, EDGE, 158, `640 40px ${SANS}`, INK.ink);
  write(pen, fit(pen, `“${race.question.replace(/\s+/g, " ")}”`), EDGE, 204, `400 22px ${SANS}`, INK.soft);
  const slowest = Math.max(...race.runs.map(({ itl }) => itl));
  race.runs.forEach((run, i) => drawRun(pen, run, 256 + i * 92, slowest));
  const added = race.network.rttMs > 0 ? `${race.network.rttMs} ms of round trip added in the page` : "no delay added";
  const small = `400 18px ${SANS}`;
  const what = `${race.model}, drafts by ${race.drafter}, temperature ${race.temperature}.`;
  write(pen, what, EDGE, HEIGHT - 70, small, INK.soft);
  write(pen, `Measured in this browser, ${added}.`, EDGE, HEIGHT - 42, small, INK.soft);
  return canvas;
}

export function saveCard(race) {
  drawCard(race).toBlob((blob) => {
    const address = URL.createObjectURL(blob);
    Object.assign(document.createElement("a"), { href: address, download: "paceline-race.png" }).click();
    URL.revokeObjectURL(address);
  }, "image/png");
}

/** The riders, as in mark.svg. */
function drawMark(pen, left, top) {
  pen.strokeStyle = BARS.hybrid;
  pen.lineWidth = 3.6;
  pen.lineCap = "round";
  [0.32, 0.62, 1].forEach((alpha, i) => {
    pen.globalAlpha = alpha;
    pen.beginPath();
    pen.moveTo(left + 2 + 8 * i, top + 20);
    pen.lineTo(left + 10 + 8 * i, top + 2);
    pen.stroke();
  });
  pen.globalAlpha = 1;
}

function drawRun(pen, { id, name, itl, steps, tokens }, top, slowest) {
  write(pen, name, EDGE, top + 34, `600 24px ${SANS}`, INK.ink);
  const [left, most] = [250, 560];
  pen.fillStyle = BARS[id];
  pen.beginPath();
  pen.roundRect(left, top + 6, Math.max(6, (itl / slowest) * most), 42, 6);
  pen.fill();
  write(pen, `${itl.toFixed(0)} ms a token`, left + most + 28, top + 28, `600 22px ${SANS}`, INK.ink);
  write(pen, `${steps} steps, ${tokens} tokens`, left + most + 28, top + 54, `400 18px ${SANS}`, INK.soft);
}

function write(pen, text, x, y, font, colour) {
  pen.font = font;
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function fit(pen, text) {
  pen.font = `400 22px ${SANS}`;
  if (pen.measureText(text).width <= WIDTH - 2 * EDGE) return text;
  let length = text.length;
  while (pen.measureText(`${text.slice(0, length)} …”`).width > WIDTH - 2 * EDGE) length -= 1;
  return `${text.slice(0, length)} …”`;
}
