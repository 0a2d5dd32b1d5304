// What this page asks of the server. The key stays with the caller; nothing is stored.

export class ApiError extends Error {
  constructor(message, status, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function refusal(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // Not of this server; its status says something all the same.
  }
  return new ApiError(error.message || `the server answered with status ${answer.status}`, answer.status, error.code);
}

async function send(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server cannot be reached", 0);
  }
}

export async function health() {
  return (await send("/health", {})).json();
}

export async function servedModel(key) {
  const answer = await send("/v1/models", { headers: headers(key) });
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()).data[0];
}

// Yields the events of a stream; ends at its end mark, and throws if that never comes.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new ApiError("the connection ended before the answer did", 0);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const payload = line.slice("data:".length).trim();
        if (payload === "[DONE]") return;
        yield JSON.parse(payload);
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    throw new ApiError("the connection broke before the answer ended", 0);
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Yields {tokens, finishReason, usage} for each chunk of a chat answer.
export async function* chat(body, key, signal) {
  const answer = await send("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
      return_token_origins: true,
    }),
    signal,
  });
  if (!answer.ok) throw await refusal(answer);
  for await (const event of events(answer.body)) {
    if (event.error) throw new ApiError(event.error.message, 0);
    const choice = event.choices?.[0];
    yield {
      tokens: choice ? tokensOf(choice) : [],
      finishReason: choice?.finish_reason ?? null,
      usage: event.usage ?? null,
    };
  }
}

// The tokens of a chunk; where origins are not told, whole texts that came from nobody known.
function tokensOf(choice) {
  if (choice.token_origins?.length) return choice.token_origins;
  const delta = choice.delta ?? {};
  const found = [];
  if (delta.reasoning_content) found.push({ text: delta.reasoning_content, is_draft: null, part: "reasoning" });
  if (delta.content) found.push({ text: delta.content, is_draft: null, part: "content" });
  return found;
}
