/** An answer that the draft model gives alone, in this tab: nothing leaves, and nobody verifies it. */

import { Figures } from "./figures.js";

export class LocalAnswer {
  #drafter;
  #request;
  #view;
  #stopped = false;

  /** @param {{drafter: object, request: object, view: object}} options as of HybridStream */
  constructor({ drafter, request, view }) {
    this.#drafter = drafter;
    this.#request = request;
    this.#view = view;
    this.figures = new Figures(performance.now());
  }

  cancel() {
    this.#stopped = true;
  }

  async start() {
    const { messages, sampling, max_tokens: most } = this.#request;
    const decoder = new TextDecoder();
    const answer = this.#drafter.begin(await this.#drafter.encode(messages), { sampling });
    let reason = "length";
    for (let count = 0; count < most; count++) {
      const proposal = this.#stopped ? null : await answer.propose();
      if (proposal === null || this.#drafter.endsAt(proposal.token)) {
        reason = this.#stopped ? "cancelled" : proposal === null ? "length" : "stop";
        break;
      }
      this.figures.arrived(1, performance.now());
      const text = decoder.decode(this.#drafter.bytesOf(proposal.token), { stream: true });
      this.#view.committed([{ text, origin: "unverified" }]);
    }
    answer.close();
    this.#view.ended({ reason, usage: null, message: "" });
  }
}
