"use strict";
// Draws the figures of windows. It knows shapes and units, and no measurement.
// Which figure is a line, a bar or a table is said by its shape; figures of one name are one panel.

const MOST = 7200; // windows of a source that are held
const LINES = 8; // lines of one chart; more would not be told apart
const COLOURS = ["#2f6feb", "#d97706", "#0d9488", "#c026d3", "#65a30d", "#dc2626", "#7c3aed", "#64748b"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [1, 4], [12, 6], [3, 6]];

const element = (id) => document.getElementById(id);
const sources = new Map(); // name -> { windows: [], label }
const panels = new Map(); // figure name -> Panel
let chosen = null, paused = false, isBehind = true, dirty = false, failing = "";

// Numbers as people read them.
function scaled(value, unit) {
  if (value === null || value === undefined) return "∞";
  const size = Math.abs(value);
  if (unit === "seconds") {
    if (size === 0) return "0 s";
    const [factor, name] = size < 1e-6 ? [1e9, "ns"] : size < 1e-3 ? [1e6, "µs"] : size < 1 ? [1e3, "ms"] : [1, "s"];
    return `${digits(value * factor)} ${name}`;
  }
  if (unit === "ratio") return `${digits(value * 100)} %`;
  const names = ["", " k", " M", " G", " T"];
  let power = 0, number = value;
  while (Math.abs(number) >= 999.5 && power < names.length - 1) { number /= 1000; power += 1; }
  const what = unit === "bytes" ? (power ? "B" : " B") : unit === "bits" ? (power ? "bit" : " bit") : "";
  return digits(number) + names[power] + what;
}
function digits(value) {
  const size = Math.abs(value);
  return Number.isInteger(value) && size < 1000 ? String(value) : value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
const time = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const labelled = (figure) => Object.entries(figure.labels || {}).map(([name, it]) => (name === "percentile" ? `p${it}` : it)).join(" ");
const inOrder = new Intl.Collator("en", { numeric: true }).compare;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function source(event) {
  const way = { ingress: " in", egress: " out" }[event.direction] || "";
  const name = event.source + way;
  if (!sources.has(name)) {
    sources.set(name, { windows: [] });
    element("source").append(make("option", { value: name }, name));
    if (chosen === null || (!event.part && !sources.get(chosen).isWhole)) { chosen = name; element("source").value = name; }
    sources.get(name).isWhole = !event.part;
  }
  return sources.get(name);
}

// What a chart needs of a window, and nothing else: an hour of windows stays small.
function kept(event) {
  const numbers = new Map(), last = [];
  for (const figure of event.figures) {
    const label = labelled(figure);
    if (figure.number) numbers.set(`${figure.name}|${label}`, [figure.number.value, figure.number.low, figure.number.high]);
    else if (figure.count !== undefined) numbers.set(`${figure.name}|${label}`, [figure.count]);
    else if (figure.state !== undefined) numbers.set(`${figure.name}|${label}`, [figure.state ? 1 : 0]);
    else last.push(figure);
  }
  return { start: event.start, end: event.end, complete: event.complete, late: event.late_ns, numbers, last };
}

function take(event) {
  const { windows } = source(event);
  const window = kept(event);
  const before = windows[windows.length - 1];
  // Rankings and distributions are shown of the last window alone.
  if (before) before.last = [];
  windows.push(window);
  if (windows.length > MOST) windows.splice(0, windows.length - MOST);
  for (const figure of event.figures) panel(figure);
  dirty = true;
}

class Panel {
  constructor(figure) {
    const { name, title, unit } = figure;
    Object.assign(this, { name, title, unit, labels: [], plot: null });
    this.shape = ["number", "count", "state", "distribution", "ranking"].find((shape) => figure[shape] !== undefined);
    this.now = make("p", { class: "now" });
    this.body = make("div", { class: this.shape === "ranking" ? "scroll" : "plot" });
    const id = `panel-${name}`;
    this.section = make("section", { "aria-labelledby": id }, make("h2", { id }, this.heading()), this.now, this.body);
    if (this.shape !== "ranking") {
      this.table = make("div", { class: "scroll", tabindex: "0" });
      const details = make("details", {}, make("summary", {}, "as a table"), this.table);
      details.addEventListener("toggle", () => this.draw());
      this.details = details;
      this.section.append(details);
    } else {
      this.body.setAttribute("tabindex", "0");
    }
    element("panels").append(this.section);
  }

  heading() {
    const text = this.title.charAt(0).toUpperCase() + this.title.slice(1);
    return this.shape === "count" ? `${text}, a second` : text;
  }

  see(label) {
    if (!this.labels.includes(label)) {
      this.labels.push(label);
      this.labels.sort(inOrder);
      this.forget();
    }
  }

  forget() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  draw() {
    const windows = shown();
    const last = windows[windows.length - 1];
    this.section.hidden = !last;
    if (!last) return;
    if (this.shape === "ranking") this.rank(last);
    else if (this.shape === "distribution") this.spread(last);
    else this.lines(windows, last);
  }

  // The value of a window's number, as it is drawn: counts as rates.
  value(window, label, part = 0) {
    const numbers = window.numbers.get(`${this.name}|${label}`);
    if (!numbers) return this.shape === "count" ? 0 : null;
    const length = window.end - window.start;
    if (this.shape === "count") return length > 0 ? numbers[0] / length : null;
    return numbers[part] === undefined ? null : numbers[part];
  }

  lines(windows, last) {
    // Of causes only those of which there was one.
    const there = this.labels.filter((label) => windows.some((window) => window.numbers.has(`${this.name}|${label}`)));
    // Counts that are zero and states that do not change say nothing.
    const says = {
      number: () => true,
      count: (label) => windows.some((window) => this.value(window, label) > 0),
      state: (label) => windows.some((window) => this.value(window, label) !== this.value(last, label)),
    }[this.shape];
    const telling = there.filter(says), labels = telling.slice(0, LINES);
    this.section.hidden = labels.length === 0;
    if (labels.length === 0) return;
    const unit = this.shape === "state" ? "things" : this.unit;
    this.tellNow = () => this.say(windows[this.at] || last, labels, unit, telling.length - labels.length);
    this.tellNow();
    const at = windows.map((window) => window.end);
    const bands = this.shape === "number";
    const data = [at];
    for (const label of labels) {
      data.push(windows.map((window) => this.value(window, label)));
      if (bands) for (const part of [1, 2]) data.push(windows.map((window) => this.value(window, label, part)));
    }
    const shape = labels.join("|");
    if (this.plot && (this.drawn !== shape || this.ground !== ground())) this.forget();
    if (!this.plot) this.chart(labels, data, unit, bands);
    else this.plot.setData(data);
    [this.drawn, this.ground] = [shape, ground()];
    if (this.details.open) this.tell(windows, labels, unit, bands);
  }

  // What the lines are at a window: the last one, or the one that is pointed at.
  say(window, labels, unit, hidden) {
    this.now.replaceChildren();
    labels.forEach((label, index) => {
      const value = this.value(window, label), [low, high] = [this.value(window, label, 1), this.value(window, label, 2)];
      const told = this.shape === "state" ? (value ? "yes" : "no") : scaled(value, unit);
      const one = make("span", { class: "one" }, swatch(index), label ? `${label} ` : "", value === null ? "none" : make("b", {}, told));
      if (this.shape === "number" && value !== null && low !== high) one.append(` (${scaled(low, unit)} … ${scaled(high, unit)})`);
      this.now.append(one, " ");
    });
    if (hidden > 0) this.now.append(`and ${hidden} more in metrics `);
    if (this.at !== undefined) this.now.append(`at ${time(window.end)}`);
  }

  chart(labels, data, unit, bands) {
    const style = getComputedStyle(document.body);
    const [ink, line] = [style.getPropertyValue("--faint"), style.getPropertyValue("--line")];
    const series = [{ value: (_, at) => (at === null ? "" : time(at)) }];
    const between = [];
    labels.forEach((label, index) => {
      const stroke = COLOURS[index];
      const value = (_, it) => (it === null ? "" : scaled(it, unit));
      series.push({ label: label || this.title, stroke, width: 2, dash: DASHES[index], points: { show: false }, value });
      if (bands) {
        const edge = { stroke: "transparent", points: { show: false }, value };
        series.push({ label: `${label} low`.trim(), ...edge }, { label: `${label} high`.trim(), ...edge });
        between.push({ series: [series.length - 1, series.length - 2], fill: `${stroke}33` });
      }
    });
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const values = (_, all) => all.map((it) => scaled(it, unit));
    this.body.replaceChildren();
    const step = this.shape === "state";
    if (step) series.forEach((it, index) => { if (index) it.paths = uPlot.paths.stepped({ align: -1 }); });
    this.plot = new uPlot({
      width: this.body.clientWidth || 480, height: 190, series, bands: between,
      axes: [axis, { ...axis, values, size: 70 }],
      scales: { y: { range: (_, low, high) => range(low, high, step) } },
      cursor: { drag: { x: false, y: false } },
      legend: { show: false },
      hooks: { setCursor: [({ cursor }) => { this.at = cursor.idx === null ? undefined : cursor.idx; this.tellNow(); }] },
    }, data, this.body);
    // Charts are not read aloud; the table is.
    this.body.setAttribute("aria-hidden", "true");
  }

  tell(windows, labels, unit, bands) {
    const names = labels.map((label) => label || this.title);
    const head = names.flatMap((name) => (bands ? [name, `${name} low`, `${name} high`] : [name]));
    const rows = windows.slice(-100).reverse().map((window) => {
      const cells = labels.flatMap((label) => (bands ? [0, 1, 2] : [0]).map((part) => this.value(window, label, part)));
      return make("tr", {}, make("td", {}, time(window.end)), ...cells.map((it) => make("td", {}, it === null ? "" : scaled(it, unit))));
    });
    this.table.replaceChildren(table(["end of the window", ...head], rows));
  }

  rank(last) {
    const figures = last.last.filter((figure) => figure.name === this.name);
    this.section.hidden = !figures.some((figure) => figure.ranking.length);
    this.body.replaceChildren();
    for (const figure of figures) {
      const most = Math.max(...figure.ranking.map((it) => it.number.value), Number.MIN_VALUE);
      const rows = figure.ranking.map(({ name, number, more }) => {
        const bar = make("span", { class: "bar", "aria-hidden": "true" });
        bar.style.width = `${(number.value / most) * 100}%`;
        const cells = [scaled(number.value, figure.unit), `${scaled(number.low, figure.unit)} … ${scaled(number.high, figure.unit)}`, more || ""];
        return make("tr", {}, make("td", { class: "name", title: name }, name, bar), ...cells.map((it) => make("td", {}, it)));
      });
      this.body.append(table([labelled(figure) || "which", "value", "bounds", ""], rows));
    }
    this.now.textContent = `in the window that ended at ${time(last.end)}`;
  }

  spread(last) {
    const figures = last.last.filter((figure) => figure.name === this.name && figure.distribution.ranges.some((it) => it.count > 0));
    this.section.hidden = figures.length === 0;
    if (figures.length === 0) return;
    this.now.textContent = `in the window that ended at ${time(last.end)}`;
    this.body.replaceChildren();
    this.body.classList.remove("plot");
    this.details.hidden = true;
    for (const figure of figures) {
      let { ranges } = figure.distribution;
      const filled = (it) => it.count > 0;
      ranges = ranges.slice(ranges.findIndex(filled), ranges.findLastIndex(filled) + 1);
      const all = ranges.reduce((sum, it) => sum + it.count, 0);
      const most = Math.max(...ranges.map((it) => it.count));
      const rows = ranges.map((it) => {
        const bar = make("span", { class: "bar", "aria-hidden": "true" });
        bar.style.width = `${(it.count / most) * 100}%`;
        const name = `${scaled(it.low, figure.unit)} … ${scaled(it.high, figure.unit)}`;
        return make("tr", {}, make("td", {}, name, bar), make("td", {}, scaled(it.count, "things")), make("td", {}, `${digits((it.count / all) * 100)} %`));
      });
      this.body.append(table([labelled(figure) || "from … to", "how many", "share"], rows));
    }
  }
}

// A piece of a line, as it is drawn.
function swatch(index) {
  const names = { width: "22", height: "8", "aria-hidden": "true", class: "swatch" };
  const [svg, line] = ["svg", "line"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(names)) svg.setAttribute(name, value);
  const drawn = { x1: 0, y1: 4, x2: 22, y2: 4, stroke: COLOURS[index], "stroke-width": 2.5, "stroke-dasharray": DASHES[index].join(" ") };
  for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

function table(head, rows) {
  const cells = head.map((it) => make("th", { scope: "col" }, it));
  return make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows));
}

const ground = () => matchMedia("(prefers-color-scheme: dark)").matches;

function range(low, high, isState) {
  if (isState || low === null) return [0, 1];
  // From zero, unless that would hide what changes.
  const from = low > 0 && low > high * 0.5 ? low - (high - low) * 0.1 - low * 0.02 : Math.min(0, low);
  const to = high + (high - from) * 0.08;
  return [from, to > from ? to : from + 1];
}

function panel(figure) {
  if (!panels.has(figure.name)) panels.set(figure.name, new Panel(figure));
  panels.get(figure.name).see(labelled(figure));
}

// Windows of the chosen source in the chosen range.
function shown() {
  const windows = (sources.get(chosen) || { windows: [] }).windows;
  const seconds = Number(element("range").value);
  if (!seconds || windows.length === 0) return windows;
  const from = windows[windows.length - 1].end - seconds;
  return windows.filter((window) => window.end > from);
}

function draw() {
  dirty = false;
  const windows = shown();
  const last = windows[windows.length - 1];
  for (const it of panels.values()) it.draw();
  const alarm = last && last.numbers.get("alarm|");
  element("alarm").hidden = !(alarm && alarm[0]);
  element("alarm").textContent = "ALARM: the entropies of sources and destinations are far off what is usual";
  tell(last);
}

function tell(last) {
  const state = element("state");
  state.classList.toggle("lost", Boolean(failing));
  const when = last ? `last window ended at ${time(last.end)}${last.complete ? "" : ", incomplete"}` : "no window has ended yet";
  state.textContent = failing || (paused ? `paused; ${when}` : when);
}

function connect() {
  const events = new EventSource("events");
  events.onmessage = (message) => take(JSON.parse(message.data));
  events.addEventListener("caught-up", () => { isBehind = false; failing = ""; dirty = true; });
  events.onerror = () => { failing = "no answer from flowgauge; trying again"; tell(); };
  events.onopen = () => { failing = ""; dirty = true; };
  // Not for every window: those before come by the hundred.
  setInterval(() => { if (dirty && !paused && !isBehind && !document.hidden) draw(); }, 250);
}

element("choices").addEventListener("submit", (event) => event.preventDefault());
element("source").addEventListener("change", (event) => { chosen = event.target.value; draw(); });
element("range").addEventListener("change", draw);
element("pause").addEventListener("click", () => {
  paused = !paused;
  element("pause").setAttribute("aria-pressed", String(paused));
  element("pause").textContent = paused ? "Go on" : "Pause";
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const it of panels.values()) it.forget(); draw(); });
new ResizeObserver(() => {
  for (const it of panels.values()) if (it.plot) it.plot.setSize({ width: it.body.clientWidth, height: 190 });
}).observe(element("panels"));
fetch("about").then((answer) => answer.json()).then(({ host }) => {
  element("host").textContent = host;
  document.title = `${host}: flowgauge`;
}).catch(() => {});
connect();
