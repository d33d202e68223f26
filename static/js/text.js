/**
 * Model output as plain text that can do nothing: it only ever reaches the page through `textContent`, and characters
 * that would hide or reorder what stands around them are shown as signs.
 */

// C0 and C1 controls but tab and line ends; bidirectional overrides and isolates (they could turn the text around:
// CVE-2021-42574).
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

export function visible(text) {
  return text.replace(UNSEEN, (character) => {
    const code = character.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : "\ufffd";
  });
}

/** The first `bytes` bytes of a text's UTF-8, as `finish` cuts it. Cuts lie between characters. */
export function keepBytes(text, bytes) {
  const data = new TextEncoder().encode(text);
  return bytes >= data.length ? text : new TextDecoder().decode(data.subarray(0, bytes));
}

/** Splits off what can be read aloud now: whole sentences. `[spoken, rest]`. */
export function sentences(text) {
  const end = text.search(/[.!?:\n][^.!?:\n]*$/);
  return end < 0 ? ["", text] : [text.slice(0, end + 1), text.slice(end + 1)];
}
