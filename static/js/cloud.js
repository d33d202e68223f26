/** The same question over plain HTTP, as any OpenAI client would ask it: the cloud alone, for comparison. */

import { events } from "./events.js";

/**
 * Streams an answer. Yields `{text}` as it comes and `{usage, reason}` at the end. Throws Error with a sentence for
 * people.
 * @param {{key: string, body: object, signal: AbortSignal, onBytes?: (up: number, down: number) => void}} options
 */
export async function* askCloud({ key, body, signal, onBytes = () => {} }) {
  const payload = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
  onBytes(new TextEncoder().encode(payload).length, 0);
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch("/v1/chat/completions", { method: "POST", headers, body: payload, signal });
  if (!response.ok) throw new Error(await complaint(response));
  let reason = null;
  for await (const data of events(response.body, (bytes) => onBytes(0, bytes))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const choice = chunk.choices?.[0];
    if (choice?.delta?.content) yield { text: choice.delta.content };
    reason = choice?.finish_reason ?? reason;
    if (chunk.usage) yield { usage: chunk.usage, reason };
  }
}

async function complaint(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The gateway answered with HTTP ${response.status}.`;
  }
}
