// OpenAI's Node client against any endpoint: prints what it was told, as one JSON object.
//   node ask.mjs BASE_URL KEY MODEL [TOKENS [TEMPERATURE]]     (with the packages of package.json in a node_modules beside it)
import OpenAI from "openai";

const [baseURL, apiKey, model, tokens = "400", degrees = "0.7"] = process.argv.slice(2);
const paths = new Set();
const client = new OpenAI({
  baseURL,
  apiKey,
  maxRetries: 0,
  fetch: async (url, init) => {
    const response = await fetch(url, init);
    paths.add(response.headers.get("x-paceline-path") ?? "gateway");
    return response;
  },
});
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];
const temperature = Number(degrees);
const sampled = { model, messages, seed: 5, temperature, max_tokens: Number(tokens) };
const city = {
  type: "object",
  properties: { city: { enum: ["Ulm", "Bonn"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", parameters: city } }];
const asked = { model, messages, seed: 3, temperature };
const forced = { ...asked, tools, tool_choice: "required", parallel_tool_calls: false };
const format = { type: "json_schema", json_schema: { name: "city", strict: true, schema: city } };

const whole = await client.chat.completions.create(sampled);
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...sampled, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
const helped = await client.chat.completions.stream(sampled).finalContent();
const parsed = await client.chat.completions.parse({ ...asked, response_format: format });
const call = (await client.chat.completions.create(forced)).choices[0].message.tool_calls[0];
const answered = [
  ...messages,
  { role: "assistant", content: null, tool_calls: [call] },
  { role: "tool", tool_call_id: call.id, content: "rain" },
];
const loop = await client.chat.completions.create({ ...sampled, messages: answered, tools });
const completion = await client.completions.create({ model, prompt: "once", seed: 5, temperature, max_tokens: 8 });

console.log(
  JSON.stringify({
    whole: whole.choices[0].message.content,
    streamed,
    helped,
    parsed: JSON.parse(parsed.choices[0].message.content),
    call: { name: call.function.name, arguments: JSON.parse(call.function.arguments) },
    loop: loop.choices[0].message.content,
    completion: completion.choices[0].text,
    paths: [...paths],
  }),
);
