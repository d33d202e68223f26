/**
 * The drafter that runs a model in this tab, from "could be had" to "ready":
 *
 *     unknown ──► missing          no model here, or none that fits, or the page was set up without wllama
 *        └──────► offered ──► loading ──► ready
 *                    ▲           └──► failed ──► loading …
 *                    └── kept: a file from an earlier visit loads by itself
 */

import { ModelDrafter } from "./model.js";
import { aboutDrafter, drafterFile, isKept } from "./store.js";

const LIBRARY = "/vendor/wllama";
/** Half the cores: the rest of the machine has the page to draw, and on a laptop perhaps the gateway to run. */
const MOST_THREADS = 4;

export class Shelf {
  #key;
  #notify;
  #loading = null;

  /** @param {{key: () => string, notify: () => void}} options */
  constructor({ key, notify }) {
    this.#key = key;
    this.#notify = notify;
    this.state = "unknown";
    this.about = null;
    this.drafter = null;
    this.problem = "";
    /** Bytes received; null while the file is being opened. */
    this.received = 0;
  }

  /** Ask what there is, for a target with this fingerprint; load it at once if that costs no download, or is local. */
  async look(fingerprint) {
    if (this.state !== "unknown") return;
    this.#enter("looking");
    const about = await aboutDrafter(this.#key());
    if (about === null) return this.#miss("This gateway has no draft model for browsers.");
    if (about.fingerprint !== fingerprint) return this.#miss("The gateway’s draft model has another vocabulary.");
    if (!(await hasLibrary()))
      return this.#miss("The page was set up without its libraries; `make page` on the gateway fetches them.");
    this.about = about;
    this.#enter("offered");
    if ((await isKept(about)) || local()) this.load();
  }

  /** The gateway could not be asked: ask again when next told of a target. */
  away() {
    if (this.state === "looking") this.#enter("unknown");
  }

  /** Resolves when the drafter is ready; a failure is in `problem`, to be shown. */
  load() {
    this.#loading ??= this.#load().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #load() {
    this.#enter("loading");
    try {
      const onProgress = (bytes) => {
        this.received = bytes;
        this.#notify();
      };
      const file = await drafterFile(this.about, { key: this.#key(), onProgress });
      this.received = null;
      this.#notify();
      const { Wllama } = await import(`${LIBRARY}/index.js`);
      const threads = threadsHere();
      this.drafter = await ModelDrafter.load({ Wllama, base: LIBRARY, file, name: this.about.id, threads });
      this.#enter("ready");
    } catch (error) {
      this.problem = `The draft model could not be loaded: ${error.message}`;
      this.#enter("failed");
    }
  }

  #miss(problem) {
    this.problem = problem;
    this.#enter("missing");
  }

  #enter(state) {
    this.state = state;
    this.#notify();
  }
}

/** Threads need memory that is shared between workers, which browsers give to isolated pages only. */
export function threadsHere() {
  if (!globalThis.crossOriginIsolated) return 1;
  const asked = Number(new URLSearchParams(location.search).get("threads"));
  if (asked > 0) return asked;
  return Math.max(1, Math.min(MOST_THREADS, Math.floor((navigator.hardwareConcurrency ?? 1) / 2)));
}

async function hasLibrary() {
  return (await fetch(`${LIBRARY}/index.js`, { method: "HEAD" })).ok;
}

function local() {
  return ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
}
