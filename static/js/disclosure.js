/**
 * What left this device, message by message: frames by kind, their bytes, and the text that they decode to. The record
 * lives in this page only. An entry is a `watch` of runtime.js.
 */

export class Disclosure {
  entries = [];
  #notify;

  /** @param {() => void} notify called whenever the record has grown */
  constructor(notify) {
    this.#notify = notify;
  }

  /** Bytes that went up since the page was opened. */
  get bytes() {
    return this.entries.reduce((sum, entry) => sum + entry.bytes, 0);
  }

  /** A new message; `mode` is its privacy mode, `kept` what redaction kept back: [placeholder, text] pairs. */
  begin({ question, mode, kept = [] }) {
    const entry = new Entry({ question, mode, kept, notify: this.#notify });
    this.entries.push(entry);
    this.#notify();
    return entry;
  }
}

class Entry {
  #notify;
  bytes = 0;
  /** kind → {frames, bytes, tokens} */
  kinds = new Map();
  /** The messages as they went up, once each way they went. */
  messages = [];
  /** Text of the drafts, one string per frame. */
  drafts = [];

  constructor({ question, mode, kept, notify }) {
    this.question = question;
    this.mode = mode;
    this.kept = kept;
    this.#notify = notify;
  }

  sent({ frame, bytes, texts = [] }) {
    this.bytes += bytes;
    const kind = this.kinds.get(frame.type) ?? { frames: 0, bytes: 0, tokens: 0 };
    const tokens = (frame.tokens?.length ?? 0) + (frame.prompt?.length ?? 0) + (frame.committed?.length ?? 0);
    this.kinds.set(frame.type, {
      frames: kind.frames + 1,
      bytes: kind.bytes + bytes,
      tokens: kind.tokens + tokens,
    });
    for (const { role, content } of frame.messages ?? []) this.messages.push({ role, content });
    if (texts.length > 0) this.drafts.push(texts.map((text) => text ?? "·").join(""));
    this.#notify();
  }
}
