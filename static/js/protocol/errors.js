/**
 * What a gateway can do wrong, seen from the edge. The tree of edge/protocol/errors.py, cut to what an edge raises
 * itself.
 */

export class ProtocolError extends Error {
  code = "protocol_error";
}

export class MalformedFrame extends ProtocolError {
  code = "bad_frame";
}

export class UnknownFrame extends ProtocolError {
  code = "unknown_frame";
}

/** A commit that starts past what is held. */
export class Gap extends ProtocolError {
  code = "gap";
}

/** An overlap that differs from what is held. */
export class Contradiction extends ProtocolError {
  code = "contradiction";
}

/** Close codes of docs/protocol.md. */
export const CLOSE = Object.freeze({
  PROTOCOL: 4400,
  UNAUTHORISED: 4401,
  IDLE: 4408,
  FENCED: 4409,
  TOO_MANY_ERRORS: 4429,
});
