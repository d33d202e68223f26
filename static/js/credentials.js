/**
 * The API key: taken from the URL's fragment (never sent to a server) or a field, kept in this tab's sessionStorage,
 * and exchanged for a single-use ticket before each connection, so that the key itself never travels over the
 * WebSocket.
 */

const KEPT = "paceline.key";

export class Refused extends Error {
  /** @param {boolean} key whether it was the key that was refused: trying again won't help */
  constructor(message, { key = false } = {}) {
    super(message);
    this.key = key;
  }
}

/** The key in the fragment `#key=…`, or "". */
export function keyIn(location) {
  return new URLSearchParams(location.hash.slice(1)).get("key") ?? "";
}

/**
 * The key in the fragment, which is removed from the address bar and the history at once; else the one kept; else "".
 */
export function takeKey(location, history, storage) {
  const given = keyIn(location);
  if (given !== "") {
    history.replaceState(null, "", location.pathname + location.search);
    storage.setItem(KEPT, given);
  }
  return storage.getItem(KEPT) ?? "";
}

export function keepKey(storage, key) {
  storage.setItem(KEPT, key);
}

export function forgetKey(storage) {
  storage.removeItem(KEPT);
}

/** How long a gateway may take to sell a ticket. */
const TICKET_MS = 12000;

/** A ticket for one connection. Throws Refused, or what fetch throws when the gateway can't be reached in time. */
export async function buyTicket(key, { fetch = globalThis.fetch } = {}) {
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch("/v1/tickets", { method: "POST", headers, signal: AbortSignal.timeout(TICKET_MS) });
  if (response.status === 401 || response.status === 403)
    throw new Refused("The gateway does not know this API key.", { key: true });
  if (!response.ok) throw new Refused(`The gateway gave no ticket (HTTP ${response.status}).`);
  return (await response.json()).ticket;
}
