/**
 * For taking turns: there the cloud waits for a draft, so a drafter that stays silent would cost it the whole time that
 * it waits at most. This one never is: where the other has no idea for a round it repeats the last token, and the round goes on.
 */
export class InsistentDrafter {
  #drafter;

  constructor(drafter) {
    this.#drafter = drafter;
    this.name = drafter.name;
  }

  textOf(token) {
    return this.#drafter.textOf?.(token) ?? null;
  }

  begin(prompt, options) {
    const continuation = this.#drafter.begin(prompt, options);
    let last = options.committed?.at(-1) ?? prompt.at(-1);
    let begins = true; // a round: nothing was proposed since the last commit
    return {
      async propose() {
        const proposal = await continuation.propose();
        if (proposal !== null || !begins) {
          last = proposal?.token ?? last;
          begins = false;
          return proposal;
        }
        begins = false;
        continuation.feed([last]);
        return { token: last, confidence: 0 };
      },
      rollback: (length) => continuation.rollback(length),
      feed(tokens) {
        last = tokens.at(-1) ?? last;
        begins = true;
        continuation.feed(tokens);
      },
      close: () => continuation.close(),
    };
  }
}
