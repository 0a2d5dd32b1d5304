// The npm package openai against a server: prints one JSON object. Usage: node openai_client.mjs BASE_URL MODEL
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "What is a river? Answer in one sentence." }];
const asked = { model, messages, max_tokens: 40, temperature: 0 };
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Weather in a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
const mustCall = { ...asked, tools, tool_choice: "required", max_tokens: 200 };

async function chat() {
  const answer = await client.chat.completions.create(asked);
  const { choices, usage } = answer;
  return { text: choices[0].message.content, finish_reason: choices[0].finish_reason, usage };
}

async function stream() {
  let text = "";
  let usage = null;
  let last = null;
  const chunks = await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of chunks) {
    text += chunk.choices[0]?.delta?.content ?? "";
    last = chunk.choices[0]?.finish_reason ?? last;
    usage = chunk.usage ?? usage;
  }
  return { text, finish_reason: last, usage };
}

// The package's own helper joins the pieces of a call, and fails when they do not fit.
async function streamedTools() {
  const completion = await client.chat.completions.stream(mustCall).finalChatCompletion();
  return shown(completion.choices[0]);
}

async function tools_() {
  return shown((await client.chat.completions.create(mustCall)).choices[0]);
}

function shown(choice) {
  const calls = (choice.message.tool_calls ?? []).map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
  return { calls, finish_reason: choice.finish_reason };
}

async function abort() {
  const endless = { ...asked, max_tokens: 1500, ignore_eos: true, stream: true };
  const chunks = await client.chat.completions.create(endless);
  let count = 0;
  for await (const chunk of chunks) {
    if (chunk.choices[0]?.delta?.content && ++count === 2) chunks.controller.abort();
  }
  return { count };
}

async function refused() {
  try {
    await client.chat.completions.create({ ...asked, temperature: -1 });
  } catch (error) {
    return { status: error.status, param: error.param, type: error.type, name: error.constructor.name };
  }
  return null;
}

const models = [];
for await (const one of client.models.list()) models.push(one.id);
const results = {
  models,
  chat: await chat(),
  stream: await stream(),
  tools: await tools_(),
  streamed_tools: await streamedTools(),
  abort: await abort(),
  refused: await refused(),
};
console.log(JSON.stringify(results));
