/**
 * A drafter that runs a model in this tab, from "could be had" to "ready":
 *
 *     unknown ──► missing          no model here, or none that fits, or the page was set up without its library
 *        └──────► offered ──► loading ──► ready
 *                    ▲           └──► failed ──► loading …
 *                    └── what is kept from an earlier visit loads by itself
 *
 * Where it comes from is a supply (supplies.js).
 */
export class Shelf {
  #key;
  #notify;
  #supply;
  #loading = null;

  /** @param {{key: () => string, notify: () => void, supply: object}} options */
  constructor({ key, notify, supply }) {
    this.#key = key;
    this.#notify = notify;
    this.#supply = supply;
    this.state = "unknown";
    this.about = null;
    this.drafter = null;
    this.problem = "";
    /** Bytes received; null while the file is being opened. */
    this.received = 0;
  }

  /** Whether somebody may choose it, be it here already or not. */
  get offered() {
    return !["unknown", "looking", "missing"].includes(this.state);
  }

  /** Ask what there is, for a target with this fingerprint; load it at once if that costs no download, or is local. */
  async look(fingerprint) {
    if (this.state !== "unknown") return;
    this.#enter("looking");
    const supply = this.#supply;
    if (!(await supply.possible())) return this.#miss("This browser can’t run it.");
    const about = await supply.about(this.#key());
    if (about === null) return this.#miss("This gateway has no draft model for browsers.");
    if (about.fingerprint !== fingerprint) return this.#miss("The gateway’s draft model has another vocabulary.");
    if (!(await supply.hasLibrary()))
      return this.#miss("The page was set up without its libraries; `make page` on the gateway fetches them.");
    this.about = about;
    this.#enter("offered");
    if (await supply.atOnce(about)) this.load();
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
      this.drafter = await this.#supply.load({ about: this.about, key: this.#key(), onProgress });
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
