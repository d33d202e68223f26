/**
 * One hybrid answer: drafts ahead of the cloud's commits, reconciles when they land, and resumes over lost connections.
 * All decisions are DraftingSession's; this file moves frames and keeps the drafter in step.
 *
 *     opening ──► live ⇄ away (socket lost) ──► resuming ──► live …
 *        └────────────┴──────────── ended
 *
 * When the gateway no longer knows the stream (restarted, or its grace time is over), the device carries it: `open`
 * with the ids committed so far, seed and choice. The output goes on token for token.
 */

import { acceptanceRate, Figures } from "./figures.js";
import { Pieces } from "./pieces.js";
import { ProtocolError } from "./protocol/errors.js";
import { DraftingSession } from "./protocol/drafting.js";

/** Tokens a round under `sync`: a limit of one block. */
const SYNC_LENGTH = 4;
/** Drafting pauses where the tail is likelier wrong than this: each draft lengthens the step that checks it. */
const LEAST_SURVIVAL = 0.4;

/** What watches a stream, and doesn't: each gets what its name says, with the time. */
const UNWATCHED = { proposed() {}, sent() {}, committed() {}, window() {}, ended() {} };

const CANCELLED = { reason: "cancelled", usage: null, message: "" };

/** @typedef {"accepted" | "corrected" | "cloud"} Origin */

export class HybridStream {
  id = -1;
  state = "opening";
  #connection;
  #drafter;
  #request;
  #view;
  #now;
  #watch;
  #continuation = null;
  #opened = null;
  #drafting = false;
  #revision = 0;
  #repairs = [];
  #confidences = [];
  #resuming = false;
  #stopping = false;
  #context;

  /**
   * @param {{connection: object, drafter: object, request: object, view: object, context?: number[] | null,
   *   now?: () => number}} options
   *   `request`: model, messages, sampling (with seed), max_tokens, policy; `view` gets pending, committed, away, back
   *   and ended; `watch` hears of proposed, sent, committed, window and ended (trace.js); `held` is what `hold` gave
   *   before the page was loaded anew; `context`, in privacy mode draft_only: the prompt, which the drafter alone gets
   */
  constructor(options) {
    const { connection, drafter, request, view, watch = UNWATCHED, held = null, context = null } = options;
    const { now = () => performance.now() } = options;
    this.#connection = connection;
    this.#drafter = drafter;
    this.#request = request;
    this.#view = view;
    this.#now = now;
    this.#watch = watch;
    this.#context = context;
    this.pieces = new Pieces(held?.pieces);
    this.figures = new Figures(now());
    const committed = held?.committed ?? [];
    this.session = new DraftingSession({ stream: 0, block: Number.MAX_SAFE_INTEGER, committed });
    this.#opened = held?.opened ?? null;
  }

  /** What another life of the page needs to go on with this stream; null if it can't: it has no drafter at first. */
  hold() {
    if (this.#opened === null || this.#context !== null) return null;
    const { resume, prompt, choice } = this.#opened;
    return { opened: { resume, prompt, choice }, committed: this.session.ledger.tokens, pieces: this.pieces.known };
  }

  get alpha() {
    return acceptanceRate(this.session.stats);
  }

  start() {
    this.#connection.attach(this);
  }

  /**
   * Ask the cloud to stop; what was committed stays. It ends with the cloud's `finish`, or at once if none can come.
   */
  cancel() {
    if (this.state === "ended" || this.#stopping) return;
    this.#stopping = true;
    if (!this.#connection.send({ type: "cancel", stream: this.id })) this.#end(CANCELLED);
  }

  connected() {
    if (this.#opened === null) this.#open();
    else this.#resume();
  }

  disconnected() {
    if (this.#stopping) return this.#end(CANCELLED);
    this.state = "away";
    this.#connection.renumber(this);
    this.#view.away();
  }

  /** A frame of this stream has left. */
  sent(frame, bytes) {
    this.figures.bytesUp += bytes;
    this.#watch.sent({ at: this.#now(), frame, bytes, texts: this.#texts(frame.tokens ?? []) });
  }

  failed(message) {
    this.#end({ reason: "error", usage: null, message });
  }

  receive(frame, bytes) {
    if (this.state === "ended") return;
    this.figures.bytesDown += bytes;
    try {
      this.#handlers[frame.type]?.(frame, bytes);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#connection.send({ type: "cancel", stream: this.id });
      this.failed(`The gateway broke the protocol: ${error.message}.`);
    }
  }

  #handlers = {
    opened: (frame) => this.#onOpened(frame),
    commit: (frame, bytes) => this.#onCommit(frame, bytes),
    window: (frame) => {
      this.session.widen(frame);
      this.#watch.window({ at: this.#now(), ahead: frame.ahead });
      this.#draft();
    },
    finish: (frame) => this.#onFinish(frame),
    error: (frame) => this.#onError(frame),
  };

  #open() {
    this.state = "opening";
    const { prompt, messages } = this.#opened?.prompt.length
      ? { prompt: this.#opened.prompt, messages: [] }
      : { prompt: [], messages: this.#request.messages };
    const committed = this.session.ledger.tokens;
    this.#connection.send({ type: "open", text: true, ...this.#request, prompt, messages, committed, stream: this.id });
  }

  #resume() {
    this.state = "resuming";
    this.#resuming = true;
    this.#connection.send({ type: "resume", stream: this.id, token: this.#opened.resume, held: this.session.head });
  }

  #onOpened(frame) {
    const again = this.#opened !== null;
    this.session.opened(frame, { resumed: again });
    this.session.limit = this.#limit();
    const prompt = frame.prompt.length ? frame.prompt : (this.#opened?.prompt ?? []);
    this.#opened = { ...frame, prompt };
    this.#resuming = false;
    this.state = "live";
    this.pieces.learnPrompt(frame.prompt, frame.pieces);
    this.#watch.window({ at: this.#now(), ahead: frame.window });
    const sampling = { ...this.#request.sampling, choice: frame.choice };
    this.#continuation ??= this.#drafter.begin(this.#context ?? prompt, { committed: [...this.session.ledger.tokens], sampling });
    if (again) this.#view.back();
    this.#draft();
  }

  #onCommit(frame, bytes) {
    const [start, tail] = [this.session.head, this.session.tail.length];
    const change = this.session.commit(frame);
    if (change.feed.length > 0) {
      this.#revision += 1;
      this.#confidences = []; // the tail is empty now
      this.#repairs.push({ keep: change.keep, feed: change.feed });
    }
    this.figures.arrived(change.committed.length, this.#now());
    // What overlaps was shown before; its text comes again with it.
    const texts = this.pieces.split(frame).slice(frame.tokens.length - change.committed.length);
    const pieces = texts.map((text, i) => ({ text, origin: originOf(i, change, frame.drafted) }));
    // The last of the text may come by itself: it was withheld while it could have begun a stop string.
    if (frame.tokens.length === 0 && frame.text !== "") pieces.push({ text: frame.text, origin: "cloud" });
    this.#watch.committed({
      at: this.#now(),
      start,
      texts,
      tail,
      bytes,
      agreed: change.agreed,
      accepted: Math.min(frame.drafted, change.agreed),
      rolledBack: this.#texts(change.rolledBack),
      stepMs: frame.step_us / 1000,
      queueMs: frame.queue_us / 1000,
    });
    this.#view.committed(pieces, { agreed: change.agreed, rolledBack: this.#texts(change.rolledBack) });
    this.#view.pending(this.#texts(this.session.tail));
    this.#draft();
  }

  #onFinish(frame) {
    this.session.finished(frame);
    this.#end({ reason: frame.reason, usage: frame.usage, keptBytes: frame.kept_bytes, message: "" });
  }

  #onError(frame) {
    if (frame.code === "draft_refused") {
      this.session.refused(frame);
      this.#draft();
    } else if (this.#resuming && frame.code === "unknown_resume") {
      this.#resuming = false;
      this.#connection.renumber(this);
      this.#open();
    } else if (frame.final) {
      this.#end({
        reason: "error",
        usage: null,
        message: frame.message || frame.code,
        retryAfterS: frame.retry_after_s,
      });
    }
  }

  /**
   * The one place that touches the drafter, so that its calls never overlap though each may take a while. A commit that
   * comes in meanwhile leaves a repair here and makes the proposal under way void.
   */
  async #draft() {
    if (this.#drafting || this.#stopping || this.#continuation === null) return;
    this.#drafting = true;
    const drafted = [];
    while (this.state !== "ended") {
      for (const { keep, feed } of this.#repairs.splice(0)) {
        this.#continuation.rollback(keep);
        this.#continuation.feed(feed);
      }
      if (!this.session.wantsDraft || !this.#promising()) break;
      const revision = this.#revision;
      const began = this.#now();
      const proposal = await this.#continuation.propose();
      if (this.state === "ended") break;
      if (revision !== this.#revision) {
        drafted.length = 0;
        continue;
      }
      if (proposal === null) {
        this.#checkStarved();
        break;
      }
      const text = this.#textOf(proposal.token);
      this.#watch.proposed({ began, at: this.#now(), position: this.session.end, text });
      this.session.draft(proposal.token);
      this.#confidences.push(proposal.confidence);
      drafted.push(proposal.token);
      this.#sendBlock(false);
    }
    this.#drafting = false;
    if (this.state === "ended") return;
    if (drafted.length > 0) this.#view.pending(this.#texts(this.session.tail));
    this.#sendBlock(true);
  }

  /**
   * Whether a token behind the tail has a fair chance: nothing follows the end of a turn, whose tokens have no text.
   */
  #promising() {
    const { tail } = this.session;
    if (tail.length === 0) return true;
    this.#confidences.splice(0, this.#confidences.length - tail.length); // the first of them are committed
    const survival = this.#confidences.reduce((product, confidence) => product * confidence, 1);
    return survival >= LEAST_SURVIVAL && this.#textOf(tail.at(-1)) !== "";
  }

  /** In mode draft_only the cloud waits for drafts: where none can come any more it would wait for ever. */
  #checkStarved() {
    const { tail, ledger } = this.session;
    if (this.#context === null || tail.length > 0 || this.#drafter.endsAt(ledger.tokens.at(-1))) return;
    this.#connection.send({ type: "cancel", stream: this.id });
    this.failed("The draft model can’t go on: its context is full.");
  }

  /** All of a tail travels in one frame, so no frame may hold less. */
  #limit() {
    const frame = this.#connection.welcome.limits.draft_tokens;
    return this.#request.policy === "sync" ? Math.min(SYNC_LENGTH, frame) : frame;
  }

  #sendBlock(flush) {
    if (this.state !== "live") return; // after `opened` all of the tail is sent
    const block = this.session.nextBlock({ flush });
    if (block !== null) this.#connection.send(block);
  }

  #texts(tokens) {
    return tokens.map((token) => this.#textOf(token));
  }

  /** A drafter that is a model knows its vocabulary; what n-grams propose was seen before. */
  #textOf(token) {
    return this.pieces.of(token) ?? this.#drafter.textOf?.(token) ?? null;
  }

  #end(outcome) {
    if (this.state === "ended") return;
    this.state = "ended";
    this.#connection.detach(this);
    this.#continuation?.close();
    this.#watch.ended({ at: this.#now(), outcome });
    this.#view.ended(outcome);
  }
}

/**
 * Where the i-th new token of a commit came from. `drafted` were verified in time; a draft that agrees but came too
 * late is the cloud's own work, and the token that stands where a draft was rolled back is a correction.
 * @returns {Origin}
 */
export function originOf(index, change, drafted) {
  if (index < Math.min(drafted, change.agreed)) return "accepted";
  return index === change.agreed && change.rolledBack.length > 0 ? "corrected" : "cloud";
}
