// The npm package @anthropic-ai/sdk against a server: prints one JSON object. Usage: node anthropic_client.mjs BASE_URL MODEL
import Anthropic from "@anthropic-ai/sdk";

const [baseURL, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "What is a river? Answer in one sentence." }];
const asked = { model, messages, max_tokens: 40, temperature: 0 };

function shown(message) {
  const text = message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
  return { text, stop_reason: message.stop_reason, tokens: [message.usage.input_tokens, message.usage.output_tokens] };
}

const results = {
  message: shown(await client.messages.create(asked)),
  stream: shown(await client.messages.stream(asked).finalMessage()),
  count: (await client.messages.countTokens({ model, messages })).input_tokens,
};
console.log(JSON.stringify(results));
