// The npm package ai against a server: prints one JSON object. Usage: node ai_sdk.mjs BASE_URL MODEL
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "slipstream",
  baseURL: `${baseURL}/v1`,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider(name);
const messages = [{ role: "user", content: "What is a river? Answer in one sentence." }];
const asked = { model, messages, maxOutputTokens: 40, temperature: 0, maxRetries: 0 };
const thinking = { providerOptions: { slipstream: { chat_template_kwargs: { thinking_mode: "enabled" } } } };

async function text() {
  const { text, finishReason, usage } = await generateText(asked);
  return { text, finish_reason: finishReason, tokens: [usage.inputTokens, usage.outputTokens] };
}

async function streamed() {
  const result = streamText(asked);
  let text = "";
  for await (const piece of result.textStream) text += piece;
  const usage = await result.usage;
  return { text, finish_reason: await result.finishReason, tokens: [usage.inputTokens, usage.outputTokens] };
}

async function reasoning() {
  const whole = await generateText({ ...asked, ...thinking, maxOutputTokens: 60 });
  const result = streamText({ ...asked, ...thinking, maxOutputTokens: 60 });
  let pieces = "";
  for await (const part of result.fullStream) if (part.type === "reasoning-delta") pieces += part.text;
  return { text: whole.text, reasoning: whole.reasoningText ?? "", streamed: pieces };
}

const weather = tool({
  description: "Weather in a city",
  inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
});
const mustCall = { ...asked, tools: { get_weather: weather }, toolChoice: "required", maxOutputTokens: 200 };

async function tools() {
  const { toolCalls, finishReason } = await generateText(mustCall);
  return { calls: toolCalls.map((call) => [call.toolName, call.input]), finish_reason: finishReason };
}

async function streamedTools() {
  const result = streamText(mustCall);
  const calls = [];
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "tool-call") calls.push([part.toolName, part.input]);
  }
  return { calls, finish_reason: await result.finishReason };
}

// zod checks the object, so an answer that does not follow the schema fails here.
async function object() {
  const schema = z.object({ animal: z.enum(["cat", "dog"]), legs: z.number().int().min(0).max(9) });
  const { object } = await generateObject({ ...asked, schema, maxOutputTokens: 200 });
  return object;
}

const results = {
  text: await text(),
  streamed: await streamed(),
  reasoning: await reasoning(),
  tools: await tools(),
  streamed_tools: await streamedTools(),
  object: await object(),
};
console.log(JSON.stringify(results));
