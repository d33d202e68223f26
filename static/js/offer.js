/** The draft model's state in words, with a button or a bar where there is something to do or to wait for. */

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

/** @param {object} shelf @param {(id: string) => HTMLElement} $ */
export function showOffer(shelf, $) {
  const { state, about, received, drafter, problem } = shelf;
  const size = about === null ? "" : megabytes(about.bytes);
  const words = {
    offered: `This tab can run the draft model itself (${about?.id}, ${size}, once).`,
    loading:
      received === null
        ? "Opening the draft model …"
        : `The draft model is on its way: ${megabytes(received)} of ${size}.`,
    ready: `The draft model is in this tab, on ${drafter?.threads === 1 ? "one thread" : `${drafter?.threads} threads`}. Choose it under Drafts.`,
    failed: problem,
    missing: problem,
  };
  $("offer").hidden = words[state] === undefined;
  $("offer").dataset.state = state;
  $("offer-text").textContent = words[state] ?? "";
  $("offer-load").hidden = state !== "offered" && state !== "failed";
  $("offer-load").textContent = state === "failed" ? "Try again" : "Load it";
  $("offer-progress").hidden = state !== "loading";
  if (state === "loading" && received !== null) $("offer-progress").value = received / about.bytes;
  else $("offer-progress").removeAttribute("value");
}
