/**
 * Frames that wait for their tick, where messages are padded. As on a slow socket, drafts of one path become one longer
 * draft, and those of a path that was left don't leave at all.
 */

export class Outbox {
  #frames = [];
  #draftTokens;

  /** @param {number} draftTokens most tokens of a draft */
  constructor(draftTokens) {
    this.#draftTokens = draftTokens;
  }

  push(frame) {
    if (frame.type === "draft")
      this.#frames = this.#frames.filter(
        ({ type, stream, epoch }) => type !== "draft" || stream !== frame.stream || epoch === frame.epoch,
      );
    const last = this.#frames.at(-1);
    if (last !== undefined && this.#continues(last, frame))
      this.#frames[this.#frames.length - 1] = { ...last, tokens: [...last.tokens, ...frame.tokens] };
    else this.#frames.push(frame);
  }

  /** The next frame; null: nothing to say. */
  take() {
    return this.#frames.shift() ?? null;
  }

  #continues(last, frame) {
    return (
      [last.type, frame.type].every((type) => type === "draft") &&
      last.stream === frame.stream &&
      last.epoch === frame.epoch &&
      last.start + last.tokens.length === frame.start &&
      last.tokens.length + frame.tokens.length <= this.#draftTokens
    );
  }
}
