// Counts one answer while it streams: tokens per chunk, times, and the engine's own counts once they are known.

export class Meter {
  // now: milliseconds, monotonic.
  constructor(now = () => performance.now()) {
    this.now = now;
    this.sentAt = now();
    this.firstAt = null;
    this.lastAt = null;
    this.steps = [];
    this.numSeen = 0;
    this.usage = null;
  }

  // tokens: [{text, is_draft, part}] of one chunk.
  add(tokens) {
    if (tokens.length === 0) return;
    this.lastAt = this.now();
    this.numSeen += tokens.length;
    if (this.firstAt === null) {
      this.firstAt = this.lastAt;
      // The prefill's token is no verify step.
      if (tokens.length === 1) return;
    }
    const drafts = tokens.filter((token) => token.is_draft === true).length;
    this.steps.push({ drafts, own: tokens.length - drafts });
  }

  finish(usage) {
    this.usage = usage;
  }

  get speculation() {
    return this.usage?.speculation ?? null;
  }

  get numTokens() {
    return this.usage?.completion_tokens ?? this.numSeen;
  }

  get acceptanceLength() {
    const counts = this.speculation;
    if (counts !== null) return counts.num_verify_steps > 0 ? counts.num_emitted / counts.num_verify_steps : null;
    if (this.steps.length === 0) return null;
    return this.steps.reduce((sum, step) => sum + step.drafts + step.own, 0) / this.steps.length;
  }

  get tokensPerSecond() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    return this.firstAt === null || seconds <= 0 ? null : (this.numTokens - 1) / seconds;
  }

  get firstMs() {
    return this.firstAt === null ? null : this.firstAt - this.sentAt;
  }
}

export function figure(value, digits) {
  return value === null ? "–" : value.toFixed(digits);
}
