// The page: wires what is typed to the server and what comes back to the screen.

import { AnswerTurn, questionTurn } from "./answer.js";
import { ApiError, chat, health, servedModel } from "./api.js";
import { Chart } from "./chart.js";
import { Meter, figure } from "./meter.js";
import { SAMPLES } from "./samples.js";

const POLL_MS = 1000;
const CONTEXT_CODE = "context_length_exceeded";
const NEAR_END_PX = 60;
const MODES = { on: "enabled", off: "disabled" };
const at = (id) => document.getElementById(id);
const chart = new Chart(at("chart"));

let model = null;
let messages = [];
let running = null;

// ---- the engine ----

async function watchEngine() {
  for (;;) {
    try {
      const state = await health();
      if (state.status === "ok") break;
      const progress = state.stage ? `, ${state.stage} ${state.done} of ${state.total}` : "";
      showEngine(`the engine is ${state.status}${progress}${state.reason ? `: ${state.reason}` : ""}`, "");
    } catch {
      showEngine("the server cannot be reached; trying again", "bad");
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  await findModel();
}

async function findModel() {
  try {
    model = await servedModel(at("key").value);
    showEngine(describe(model), "good");
    showProblem("");
  } catch (error) {
    model = null;
    const needsKey = error instanceof ApiError && error.status === 401;
    showEngine(needsKey ? "the server asks for an API key: enter it in the settings" : error.message, "bad");
    if (needsKey) at("settings").open = true;
  }
}

function describe({ id, engine }) {
  if (!engine) return id;
  const drafts = engine.draft_len ? `drafter ${engine.drafter}, ${engine.draft_len} drafts per step` : "no drafter";
  const verification = engine.draft_len ? ` · verification ${engine.verification}` : "";
  return `${id} · ${engine.device}, ${engine.dtype} · ${drafts}${verification}`;
}

function showEngine(text, lamp) {
  at("engine-text").textContent = text;
  at("lamp").className = `lamp ${lamp}`;
}

function showProblem(text) {
  at("problem").textContent = text;
  at("problem").hidden = text === "";
}

// ---- what is asked ----

function readSettings() {
  const number = (id) => (at(id).value.trim() === "" ? undefined : Number(at(id).value));
  const mode = MODES[at("thinking").value];
  return {
    temperature: number("temperature"),
    seed: number("seed"),
    max_tokens: number("max-tokens"),
    chat_template_kwargs: mode ? { thinking_mode: mode } : undefined,
  };
}

function firstBadSetting() {
  return [...at("settings").querySelectorAll("input")].find((input) => !input.checkValidity()) ?? null;
}

async function ask(text) {
  const bad = firstBadSetting();
  if (bad !== null) {
    at("settings").open = true;
    bad.reportValidity();
    return;
  }
  at("welcome").hidden = true;
  showProblem("");
  const question = questionTurn(text);
  const turn = new AnswerTurn();
  at("log").append(question, turn.element);
  at("log").scrollTop = at("log").scrollHeight;
  const asked = [...messages, { role: "user", content: text }];
  const meter = new Meter();
  const control = new AbortController();
  setRunning(control);
  let finishReason = null;
  try {
    if (model === null) await findModel();
    const body = { model: model?.id, messages: asked, ...readSettings() };
    for await (const chunk of chat(body, at("key").value, control.signal)) {
      if (running !== control) return;
      follow(turn, meter, chunk);
      finishReason = chunk.finishReason ?? finishReason;
      if (chunk.usage) meter.finish(chunk.usage);
    }
    keep(asked, turn);
  } catch (error) {
    if (running !== control) return;
    if (error.name === "AbortError") {
      finishReason = "stopped";
      keep(asked, turn);
    } else {
      takeBack(question, turn, text);
      showProblem(adviceOn(error));
      return;
    }
  } finally {
    if (running === control) setRunning(null);
  }
  showFigures(meter);
  turn.end(footOf(meter, finishReason));
  stayAtEnd(true);
}

// A conversation that has filled the context can only be left.
function adviceOn(error) {
  const isFull = error.code === CONTEXT_CODE && messages.length > 0;
  return isFull ? `${error.message}. New chat begins anew.` : error.message;
}

function follow(turn, meter, chunk) {
  const isNearEnd = stayAtEnd(false);
  meter.add(chunk.tokens);
  for (const token of chunk.tokens) turn.add(token);
  if (chunk.tokens.length > 0) showFigures(meter);
  if (isNearEnd) stayAtEnd(true);
}

function stayAtEnd(isMoved) {
  const log = at("log");
  const isNearEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
  if (isMoved) log.scrollTop = log.scrollHeight;
  return isNearEnd;
}

function keep(asked, turn) {
  const { content, reasoning } = turn.said;
  if (content === "" && reasoning === "") return;
  messages = [...asked, { role: "assistant", content, ...(reasoning ? { reasoning_content: reasoning } : {}) }];
}

// What was not answered is not part of the conversation; the words go back to where they can be sent again.
function takeBack(question, turn, text) {
  turn.end("");
  if (turn.said.content === "" && turn.said.reasoning === "") {
    question.remove();
    turn.element.remove();
  }
  at("welcome").hidden = at("log").querySelector(".turn") !== null;
  if (at("message").value === "") at("message").value = text;
  grow();
}

// ---- what is measured ----

function showFigures(meter) {
  const counts = meter.speculation;
  at("acceptance").textContent = figure(meter.acceptanceLength, 2);
  at("speed").textContent = figure(meter.tokensPerSecond, 1);
  at("tokens").textContent = String(meter.numTokens);
  at("first").textContent = meter.firstMs === null ? "–" : `${meter.firstMs.toFixed(0)} ms`;
  at("accepted").textContent = counts === null ? "–" : `${counts.num_accepted} of ${counts.num_draft_tokens}`;
  const most = (model?.engine?.draft_len ?? 3) + 1;
  chart.show(meter.steps, meter.acceptanceLength, most);
  at("chart").setAttribute(
    "aria-label",
    `Tokens of each step: ${meter.steps.length} steps, on average ${figure(meter.acceptanceLength, 2)} tokens`,
  );
}

function footOf(meter, finishReason) {
  const parts = [];
  if (meter.acceptanceLength !== null) parts.push(`acceptance length ${meter.acceptanceLength.toFixed(2)}`);
  if (meter.tokensPerSecond !== null) parts.push(`${meter.tokensPerSecond.toFixed(1)} tokens/s`);
  parts.push(`${meter.numTokens} tokens`);
  if (finishReason === "length") parts.push("cut at the limit");
  if (finishReason === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

// ---- the controls ----

function setRunning(control) {
  running = control;
  at("send").hidden = control !== null;
  at("stop").hidden = control === null;
  for (const button of at("samples").children) button.disabled = control !== null;
}

function grow() {
  const box = at("message");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

function submit() {
  const text = at("message").value;
  if (running !== null || text.trim() === "") return;
  at("message").value = "";
  grow();
  ask(text);
}

function reset() {
  running?.abort();
  setRunning(null);
  messages = [];
  for (const turn of at("log").querySelectorAll(".turn")) turn.remove();
  at("welcome").hidden = false;
  showProblem("");
  showFigures(new Meter());
  at("tokens").textContent = "–";
  at("message").focus();
}

function addSamples() {
  for (const sample of SAMPLES) {
    const button = document.createElement("button");
    button.type = "button";
    const title = document.createElement("strong");
    title.textContent = sample.title;
    const text = document.createElement("span");
    text.textContent = sample.message;
    button.append(title, text);
    button.addEventListener("click", () => {
      at("thinking").value = sample.thinking;
      ask(sample.message);
    });
    at("samples").append(button);
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
at("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
at("message").addEventListener("input", grow);
at("stop").addEventListener("click", () => running?.abort());
at("reset").addEventListener("click", reset);
at("key").addEventListener("change", findModel);
at("fields").addEventListener("submit", (event) => event.preventDefault());
at("colour").addEventListener("change", () => at("log").classList.toggle("plain", !at("colour").checked));

if (matchMedia("(max-width: 52rem)").matches) at("settings").open = false;
addSamples();
showFigures(new Meter());
at("tokens").textContent = "–";
watchEngine();
