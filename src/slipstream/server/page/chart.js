// A small chart of the tokens of each step: accepted drafts stacked on the model's own token, and the mean.
// Draws only; who counts is the meter.

const GAP = 2;
const MAX_BAR = 14;
const MIN_BAR = 3;
const AXIS = 16;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.steps = [];
    this.mean = null;
    this.most = 4;
    this.isAsked = false;
    new ResizeObserver(() => this.ask()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.ask());
  }

  // steps: [{drafts, own}], mean: number or null, most: tokens that one step can give.
  show(steps, mean, most) {
    this.steps = steps;
    this.mean = mean;
    this.most = Math.max(most, ...steps.map((step) => step.drafts + step.own));
    this.ask();
  }

  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  draw() {
    const scale = devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    pen.scale(scale, scale);
    const top = 6;
    const bottom = height - 4;
    const level = (tokens) => bottom - (tokens / this.most) * (bottom - top);
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    pen.lineWidth = 1;
    const every = Math.ceil(this.most / Math.max(1, Math.floor((bottom - top) / 16)));
    for (let tokens = 0; tokens <= this.most; tokens += every) {
      const y = Math.round(level(tokens)) + 0.5;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(AXIS, y);
      pen.lineTo(width, y);
      pen.stroke();
      pen.fillStyle = colour("--soft");
      pen.fillText(String(tokens), 0, Math.min(Math.max(y, 6), height - 6));
    }
    const room = width - AXIS - GAP;
    const bar = Math.min(MAX_BAR, Math.max(MIN_BAR, Math.floor(room / Math.max(this.steps.length, 1)) - GAP));
    const shown = this.steps.slice(-Math.floor(room / (bar + GAP)));
    shown.forEach((step, place) => {
      const x = AXIS + GAP + place * (bar + GAP);
      pen.fillStyle = colour("--target-bar");
      pen.fillRect(x, level(step.own), bar, bottom - level(step.own));
      if (step.drafts === 0) return;
      const seam = step.own > 0 ? 1 : 0;
      pen.fillStyle = colour("--draft-bar");
      pen.fillRect(x, level(step.own + step.drafts), bar, level(step.own) - level(step.own + step.drafts) - seam);
    });
    if (this.mean !== null) {
      pen.strokeStyle = colour("--mean");
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(AXIS, level(this.mean));
      pen.lineTo(width, level(this.mean));
      pen.stroke();
    }
  }
}
