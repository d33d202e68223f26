/** The draft model's state in words, with a button or a bar where there is something to do or to wait for. */

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

const place = (drafter) =>
  ({ undefined: "the GPU", 1: "one thread" })[drafter?.threads] ?? `${drafter?.threads} threads`;

/** @param {object} shelf @param {string} chosen what drafts now @param {(id: string) => HTMLElement} $ */
export function showOffer(shelf, chosen, $) {
  const { state, about, received, drafter, problem } = shelf;
  const size = about === null ? "" : megabytes(about.bytes);
  const drafts = chosen === "model" || chosen === "webllm";
  const words = {
    offered: `This tab can run the draft model itself (${about?.id}, ${size}, once).`,
    loading:
      received === null
        ? "Opening the draft model …"
        : `The draft model is on its way: ${megabytes(received)} of ${size}.`,
    ready: `The draft model ${drafts ? "drafts" : "is"} in this tab, on ${place(drafter)}.`,
    failed: problem,
    missing: problem,
  };
  $("offer").hidden = words[state] === undefined;
  $("offer").dataset.state = state;
  $("offer-text").textContent = words[state] ?? "";
  const acts = { offered: "Load it", failed: "Try again", ready: drafts ? undefined : "Let it draft" };
  $("offer-load").hidden = acts[state] === undefined;
  $("offer-load").textContent = acts[state] ?? "";
  $("offer-progress").hidden = state !== "loading";
  if (state === "loading" && received !== null) $("offer-progress").value = received / about.bytes;
  else $("offer-progress").removeAttribute("value");
}
