// One turn of the conversation on the page. All text goes in as text nodes, never as markup.

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function questionTurn(text) {
  const turn = element("article", "turn mine");
  turn.setAttribute("aria-label", "You");
  turn.append(element("div", "text", text));
  return turn;
}

export class AnswerTurn {
  constructor() {
    this.element = element("article", "turn theirs");
    this.element.setAttribute("aria-label", "Answer");
    // A screen reader waits until the answer is whole.
    this.element.setAttribute("aria-busy", "true");
    this.content = element("div", "text content");
    this.element.append(this.content);
    this.reasoning = null;
    this.said = { reasoning: "", content: "", call: "" };
  }

  add(token) {
    const part = token.part === "reasoning" ? "reasoning" : token.part === "call" ? "call" : "content";
    const isFirst = this.said[part] === "";
    this.said[part] += token.text;
    const shown = isFirst ? token.text.replace(/^\n+/, "") : token.text;
    if (shown === "") return;
    const place = part === "reasoning" ? this.reasoningText() : this.content;
    const kind = token.is_draft === true ? "draft" : token.is_draft === false ? "target" : "unknown";
    place.append(element("span", `token ${kind}`, shown));
  }

  reasoningText() {
    if (this.reasoning === null) {
      const details = element("details", "reasoning");
      details.open = true;
      this.reasoning = element("div", "text");
      details.append(element("summary", "", "Thinking"), this.reasoning);
      this.element.prepend(details);
    }
    return this.reasoning;
  }

  // foot: one line about the answer.
  end(foot) {
    this.element.setAttribute("aria-busy", "false");
    if (foot) this.element.append(element("p", "foot", foot));
  }
}
