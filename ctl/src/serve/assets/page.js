"use strict";
// Draws the figures of windows, received from a run or embedded in this page. It depends on shapes and units, not on
// measurements; the only states it treats by name are the alarm and the rules of --alert.
// The shape of a figure decides between a line, a bar and a table; figures with one name share a panel.

const MOST = 7200; // stored windows of a source
const ROWS = 100; // maximum rows of a table
const LINES = 8; // maximum lines of a chart; more are indistinguishable
const COLOURS = ["#2f6feb", "#d97706", "#0d9488", "#c026d3", "#65a30d", "#dc2626", "#7c3aed", "#64748b"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [1, 4], [12, 6], [3, 6]];

const element = (id) => document.getElementById(id);
const sources = new Map(); // name -> { windows: [], total, isWhole }
const panels = new Map(); // figure name -> Panel
const held = element("data") && JSON.parse(element("data").textContent); // windows of a report; null on the live page
let chosen = null, paused = null, isBehind = true, dirty = false, failing = "", run = null;

// Formats numbers for people.
function scaled(value, unit) {
  if (value === null || value === undefined) return "∞"; // JSON has no infinity
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
  if (size > 0 && size < 0.01) return value.toPrecision(2);
  return Number.isInteger(value) && size < 1000 ? String(value) : value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
// Times of captures are shown in UTC as recorded; those of a run in the reader's time zone.
const date = (seconds) => (held ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000));
function time(seconds, step = 0) {
  const fine = { ...(step >= 60 ? { second: undefined } : {}), ...(step >= 1 ? { fractionalSecondDigits: undefined } : {}) };
  const shape = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", ...look, ...fine, timeZone: held ? "UTC" : undefined };
  return new Date(seconds * 1000).toLocaleString(undefined, shape);
}
// Further parts of a time: fractions of seconds for short windows, the date for long ranges.
let look = {};
function lookAt(windows) {
  const [first, last] = [windows[0], windows[windows.length - 1]];
  const fine = windows.length > 0 && windows.some((it) => it.end - it.start < 1);
  const long = windows.length > 0 && last.end - first.start > 86400;
  look = { ...(fine ? { fractionalSecondDigits: 3 } : {}), ...(long ? { month: "short", day: "numeric" } : {}) };
}
// Groups the lines of a chart: figures with one name; percentiles also need equal other labels, since more lines are indistinguishable.
function placed({ name, title, labels = {} }) {
  const { percentile, ...others } = labels;
  const other = Object.values(others).join(" ");
  if (percentile === undefined || !other) return { panel: name, title, label: percentile === undefined ? other : `p${percentile}` };
  return { panel: `${name} ${other}`, title: `${title}, ${other}`, label: `p${percentile}` };
}
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
    sources.set(name, { windows: [], total: null, isWhole: !event.part });
    element("source").append(make("option", { value: name }, name));
    // Prefer the union of all sources to a single one.
    if (chosen === null || (!event.part && !sources.get(chosen).isWhole)) { chosen = name; element("source").value = name; }
  }
  return sources.get(name);
}

// Reduces a window to the data that a chart needs, so that an hour of windows stays small.
function kept(event) {
  const numbers = new Map(), last = [];
  for (const figure of event.figures) {
    const { panel, label } = placed(figure);
    if (figure.number) numbers.set(`${panel}|${label}`, [figure.number.value, figure.number.low, figure.number.high, figure.truth]);
    else if (figure.count !== undefined) numbers.set(`${panel}|${label}`, [figure.count]);
    else if (figure.state !== undefined) numbers.set(`${panel}|${label}`, [figure.state ? 1 : 0]);
    else last.push(figure);
  }
  return { start: event.start, end: event.end, complete: event.complete, late: event.late_ns, numbers, last };
}

function take(event) {
  const { windows } = source(event);
  const window = kept(event);
  const before = windows[windows.length - 1];
  // Rankings and distributions show the last window only, except for a capture.
  if (before && !held && !before.isHeld) before.last = [];
  windows.push(window);
  if (windows.length > MOST) windows.splice(0, windows.length - MOST);
  for (const figure of event.figures) panel(figure);
  dirty = true;
}

class Panel {
  constructor(figure) {
    const { panel: name, title } = placed(figure);
    Object.assign(this, { name, title, unit: figure.unit, labels: [], plot: null });
    this.shape = ["number", "count", "state", "distribution", "ranking"].find((shape) => figure[shape] !== undefined);
    this.now = make("p", { class: "now" });
    this.body = make("div", { class: this.shape === "ranking" ? "scroll" : "plot" });
    const id = `panel-${name.replaceAll(" ", "-")}`;
    this.section = make("section", { "aria-labelledby": id }, make("h2", { id }, this.heading()), this.now, this.body);
    if (this.shape !== "ranking") {
      this.table = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${this.title}, as a table` });
      const details = make("details", {}, make("summary", {}, "as a table"), this.table);
      details.addEventListener("toggle", () => this.draw());
      this.details = details;
      this.section.append(details);
    } else {
      for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-labelledby": id })) this.body.setAttribute(name, value);
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

  // A hidden chart stores no windows: it may stay hidden for days.
  hide() {
    this.forget();
    [this.windows, this.tellNow] = [[], () => {}];
    this.section.hidden = true;
  }

  draw(windows = shown()) {
    const last = windows[windows.length - 1];
    if (!last) return this.hide();
    this.section.hidden = false;
    const about = asked(windows);
    if (this.shape === "ranking") this.rank(about);
    else if (this.shape === "distribution") this.spread(about);
    else this.lines(windows, last);
  }

  // Returns the value to draw for a window: a rate for counts.
  value(window, label, part = 0) {
    const numbers = window.numbers.get(`${this.name}|${label}`);
    if (!numbers) return this.shape === "count" ? 0 : null;
    const length = window.end - window.start;
    if (this.shape === "count") return length > 0 ? numbers[0] / length : null;
    return numbers[part] === undefined ? null : numbers[part]; // 0 is the estimate, 1 and 2 its bounds, 3 the truth
  }

  lines(windows, last) {
    // Show only causes that occurred.
    const there = this.labels.filter((label) => windows.some((window) => window.numbers.has(`${this.name}|${label}`)));
    // Hide counts that stay zero and states that do not change.
    const says = {
      number: () => true,
      count: (label) => windows.some((window) => this.value(window, label) > 0),
      state: (label) => windows.some((window) => this.value(window, label) !== this.value(last, label)),
    }[this.shape];
    const telling = there.filter(says), labels = telling.slice(0, LINES);
    if (labels.length === 0) return this.hide();
    const unit = this.shape === "state" ? "things" : this.unit;
    this.tellNow = () => this.say(windows[this.at] || last, labels, unit, telling.length - labels.length);
    this.tellNow();
    const at = windows.map((window) => window.end);
    const bands = this.shape === "number";
    // Draw exact values only if all windows have them.
    const truths = bands && labels.some((label) => this.value(last, label, 3) !== null);
    const parts = bands ? (truths ? [0, 1, 2, 3] : [0, 1, 2]) : [0];
    const data = [at];
    for (const label of labels) for (const part of parts) data.push(windows.map((window) => this.value(window, label, part)));
    this.windows = windows;
    const shape = labels.join("|") + parts.length;
    if (this.plot && (this.drawn !== shape || this.ground !== ground())) this.forget();
    if (!this.plot) this.chart(labels, data, unit, parts);
    else this.plot.setData(data);
    [this.drawn, this.ground] = [shape, ground()];
    if (this.details.open) this.tell(windows, labels, unit, parts);
  }

  // Shows the values of the lines at a window: the last one, or the one under the pointer.
  say(window, labels, unit, hidden) {
    this.now.replaceChildren();
    labels.forEach((label, index) => {
      const value = this.value(window, label), [low, high] = [this.value(window, label, 1), this.value(window, label, 2)];
      const told = this.shape === "state" ? (value ? "yes" : "no") : scaled(value, unit);
      const one = make("span", { class: "one" }, swatch(index), label ? `${label} ` : "", value === null ? "none" : make("b", {}, told));
      if (this.shape === "number" && value !== null && low !== high) one.append(` (${scaled(low, unit)} … ${scaled(high, unit)})`);
      const truth = this.shape === "number" ? this.value(window, label, 3) : null;
      if (truth !== null) one.append(`, truth ${scaled(truth, unit)}`);
      this.now.append(one, " ");
    });
    if (hidden > 0) this.now.append(`and ${hidden} more in metrics `);
    if (this.at !== undefined) this.now.append(`at ${time(window.end)}`);
  }

  chart(labels, data, unit, parts) {
    const style = getComputedStyle(document.body);
    const [ink, line] = [style.getPropertyValue("--faint"), style.getPropertyValue("--line")];
    const series = [{ value: (_, at) => (at === null ? "" : time(at)) }];
    const between = [];
    labels.forEach((label, index) => {
      const stroke = COLOURS[index];
      const value = (_, it) => (it === null ? "" : scaled(it, unit));
      series.push({ label: label || this.title, stroke, width: 2, dash: DASHES[index], points: { show: false }, value });
      const edge = { stroke: "transparent", points: { show: false }, value };
      if (parts.length > 1) {
        series.push({ label: `${label} low`.trim(), ...edge }, { label: `${label} high`.trim(), ...edge });
        between.push({ series: [series.length - 1, series.length - 2], fill: `${stroke}33` });
      }
      const exact = { stroke: style.getPropertyValue("--ink"), width: 1, dash: [1, 2] };
      if (parts.length > 3) series.push({ label: `${label} truth`.trim(), ...edge, ...exact });
    });
    const step = this.shape === "state";
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const values = (_, all) => all.map((it) => (step ? (it ? "yes" : "no") : scaled(it, unit)));
    // Reserve width for the longest label.
    const room = (_, all) => Math.max(70, ...(all || []).map((it) => 16 + 7 * it.length));
    // The page's number format in place of uPlot's.
    const times = (_, all) => all.map((it) => time(it, all.length > 1 ? all[1] - all[0] : 0));
    this.body.replaceChildren();
    if (step) series.forEach((it, index) => { if (index) it.paths = uPlot.paths.stepped({ align: -1 }); });
    this.plot = new uPlot({
      width: this.body.clientWidth || 480, height: 190, series, bands: between,
      axes: [{ ...axis, values: times, space: 80, size: 32 }, { ...axis, values, size: room, ...(step ? { splits: () => [0, 1] } : {}) }],
      scales: { y: { range: (_, low, high) => range(low, high, step) } },
      cursor: { drag: { x: false, y: false } },
      legend: { show: false },
      tzDate: date,
      hooks: {
        drawClear: [(plot) => this.mark(plot)],
        setCursor: [({ cursor }) => { this.at = cursor.idx === null ? undefined : cursor.idx; this.tellNow(); }],
      },
    }, data, this.body);
    if (held) this.plot.over.addEventListener("click", () => { if (this.at !== undefined) ask(this.windows[this.at]); });
    // Screen readers skip charts and read the table.
    this.body.setAttribute("aria-hidden", "true");
  }

  // Marks unusual windows.
  mark(plot) {
    const { ctx, bbox } = plot;
    const style = getComputedStyle(document.body);
    const from = plot.scales.x.min;
    const colours = [[(it) => !it.complete, style.getPropertyValue("--faint")], [isAlarmed, style.getPropertyValue("--alarm")]];
    ctx.save();
    for (const [is, colour] of colours) {
      [ctx.fillStyle, ctx.globalAlpha] = [colour, 0.18];
      for (const window of this.windows.filter(is)) {
        const [left, right] = [Math.max(window.start, from), window.end].map((at) => plot.valToPos(at, "x", true));
        if (right >= bbox.left) ctx.fillRect(left, bbox.top, Math.max(right - left, 1), bbox.height);
      }
    }
    ctx.restore();
  }

  tell(windows, labels, unit, parts) {
    const names = labels.map((label) => label || this.title);
    const head = names.flatMap((name) => parts.map((part) => name + ["", " low", " high", " truth"][part]));
    const rows = windows.slice(-ROWS).reverse().map((window) => {
      const cells = labels.flatMap((label) => parts.map((part) => this.value(window, label, part)));
      const marks = `${window.complete ? "" : "*"}${isAlarmed(window) ? "!" : ""}`;
      const told = (it) => (it === null ? "" : this.shape === "state" ? (it ? "yes" : "no") : scaled(it, unit));
      return make("tr", {}, make("td", {}, time(window.end) + marks), ...cells.map((it) => make("td", {}, told(it))));
    });
    const which = windows.length > ROWS ? `the last ${ROWS} of ${windows.length} windows` : "all windows";
    const marks = "* cut short or incomplete, ! alarm";
    this.table.replaceChildren(table(["end of the window", ...head], rows, `${which}; ${marks}`));
  }

  // Names the window of a ranking or a distribution.
  sayWhich(about) {
    this.now.textContent = about.isTotal ? "in everything together" : `in the window that ended at ${time(about.end)}`;
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
      this.body.append(table([placed(figure).label || "which", "value", "bounds", ""], rows));
    }
    this.sayWhich(last);
  }

  spread(last) {
    const figures = last.last.filter((figure) => figure.name === this.name && figure.distribution.ranges.some((it) => it.count > 0));
    this.section.hidden = figures.length === 0;
    if (figures.length === 0) return;
    this.sayWhich(last);
    this.body.replaceChildren();
    this.body.className = "scroll";
    for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": this.title })) this.body.setAttribute(name, value);
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
      this.body.append(table([placed(figure).label || "from … to", "how many", "share"], rows));
    }
  }
}

// A sample of a line's style, for the legend.
function swatch(index) {
  const names = { width: "22", height: "8", "aria-hidden": "true", class: "swatch" };
  const [svg, line] = ["svg", "line"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(names)) svg.setAttribute(name, value);
  const drawn = { x1: 0, y1: 4, x2: 22, y2: 4, stroke: COLOURS[index], "stroke-width": 2.5, "stroke-dasharray": DASHES[index].join(" ") };
  for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

function table(head, rows, caption) {
  const cells = head.map((it) => make("th", { scope: "col" }, it));
  const told = caption ? [make("caption", {}, caption)] : [];
  return make("table", {}, ...told, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows));
}

// Alert rules that certainly hold.
function firing(window) {
  const holding = [...window.numbers].filter(([key, [holds]]) => key.startsWith("alert_firing|") && holds);
  return holding.map(([key]) => key.slice("alert_firing|".length));
}

function isAlarmed(window) {
  const alarm = window.numbers.get("alarm|");
  return Boolean(alarm && alarm[0]);
}

// Created once: each media query object would live until garbage collection.
const darkness = matchMedia("(prefers-color-scheme: dark)");
const ground = () => darkness.matches;

function range(low, high, isState) {
  if (isState || low === null) return [0, 1];
  // The axis starts at zero, unless that would hide the changes.
  const from = low > 0 && low > high * 0.5 ? low - (high - low) * 0.1 - low * 0.02 : Math.min(0, low);
  const to = high + (high - from) * 0.08;
  return [from, to > from ? to : from + 1];
}

function panel(figure) {
  const { panel, label } = placed(figure);
  if (!panels.has(panel)) panels.set(panel, new Panel(figure));
  panels.get(panel).see(label);
}

// Returns the windows of the selected source in the selected range.
function shown() {
  const windows = (paused && paused.get(chosen)) || (sources.get(chosen) || { windows: [] }).windows;
  const seconds = held ? 0 : Number(element("range").value);
  if (!seconds || windows.length === 0) return windows;
  const from = windows[windows.length - 1].end - seconds;
  return windows.filter((window) => window.end > from);
}

// Returns the window for rankings and distributions: the last one, or for a capture the selected one.
function asked(windows) {
  const number = element("which").value;
  const { total } = sources.get(chosen) || {};
  if (held && number === "all" && total) return summed(total, windows);
  return (held && windows[Number(number)]) || windows[windows.length - 1];
}

// Adds up the windows' distributions, which a total lacks; their ranges are equal.
function summed(total, windows) {
  if (total.isSummed) return total;
  total.isSummed = true;
  const key = (figure) => JSON.stringify([figure.name, figure.labels]);
  const known = new Set(total.last.map(key)), sums = new Map();
  for (const figure of windows.flatMap((window) => window.last)) {
    if (!figure.distribution || known.has(key(figure))) continue;
    const sum = sums.get(key(figure));
    if (sum) figure.distribution.ranges.forEach((it, at) => { sum.distribution.ranges[at].count += it.count; });
    else sums.set(key(figure), structuredClone(figure));
  }
  total.last.push(...sums.values());
  return total;
}

function ask(window) {
  element("which").value = String(shown().indexOf(window));
  draw();
}

function draw() {
  dirty = false;
  const windows = shown();
  const last = windows[windows.length - 1];
  lookAt(windows);
  for (const it of panels.values()) it.draw(windows);
  const alarmed = windows.filter(isAlarmed);
  element("alarmed").hidden = alarmed.length === 0;
  const what = "the entropies of sources and destinations are far off what is usual";
  const told = [];
  if (held && alarmed.length > 0) told.push(`ALARM in ${alarmed.length} of ${windows.length} windows, first in the one that ended at ${time(alarmed[0].end)}: ${what}`);
  if (!held && last && isAlarmed(last)) told.push(`ALARM: ${what}`);
  if (last) told.push(...firing(last).map((rule) => `ALERT: ${rule}`));
  element("alarm").hidden = told.length === 0;
  if (element("alarm").textContent !== told.join("; ")) element("alarm").textContent = told.join("; ");
  tell(windows);
}

function tell(windows = shown()) {
  const state = element("state");
  const last = windows[windows.length - 1];
  state.classList.toggle("lost", Boolean(failing));
  const when = last ? `last window ended at ${time(last.end)}${last.complete ? "" : ", incomplete"}` : "no window has ended yet";
  const all = last ? `${windows.length} windows, ${time(windows[0].start)} to ${time(last.end)}` : "no packets";
  state.textContent = held ? all : failing || (paused ? `paused; ${when}` : when);
}

function complain(problems) {
  element("problems").hidden = problems.length === 0;
  const told = problems.map((problem) => make("li", {}, problem));
  if ([...element("problems").children].map((it) => it.textContent).join() !== problems.join()) element("problems").replaceChildren(...told);
}

// The run has restarted: discard the windows of the previous one.
function forget() {
  sources.clear();
  panels.clear();
  [chosen, isBehind] = [null, true];
  element("source").replaceChildren();
  element("panels").replaceChildren();
  if (paused) pause(false);
}

function pause(now) {
  for (const { windows } of sources.values()) if (now && windows.length) windows[windows.length - 1].isHeld = true;
  paused = now ? new Map([...sources].map(([name, { windows }]) => [name, windows.slice()])) : null;
  element("pause").setAttribute("aria-pressed", String(now));
}

function connect() {
  const events = new EventSource("events");
  events.onmessage = (message) => take(JSON.parse(message.data));
  events.addEventListener("run", (message) => {
    if (run !== null && run !== message.data) forget();
    run = message.data;
  });
  events.addEventListener("caught-up", () => { isBehind = false; failing = ""; dirty = true; });
  events.onopen = () => { failing = ""; dirty = true; };
  events.onerror = () => {
    failing = "no answer from flowgauge; trying again";
    tell();
    // Browsers do not reconnect after an answer that is not a stream.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

// Redraws once for many windows, since past ones arrive by the hundred, and uses only a part of the CPU time.
function redraw() {
  const began = performance.now();
  if (dirty && !paused && !isBehind && !document.hidden) draw();
  setTimeout(redraw, Math.max(250, 4 * (performance.now() - began)));
}

function watch() {
  const about = () => fetch("about").then((answer) => answer.json()).then(({ host, problems }) => {
    element("title").textContent = host;
    document.title = `${host}: flowgauge`;
    complain(problems);
  }).catch(() => {});
  element("zone").textContent = `Times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;
  about();
  setInterval(about, 10000);
  connect();
  redraw();
}

// A capture: all windows are embedded.
function report({ about, totals, windows }) {
  element("title").textContent = about.title;
  document.title = `${about.title}: flowgauge`;
  element("zone").textContent = `Times are UTC. Made by flowgauge ${about.version}.`;
  for (const id of ["links", "pause"]) element(id).hidden = true;
  element("range").parentNode.hidden = true;
  for (const { name, value } of about.facts) element("facts").append(make("dt", {}, name), make("dd", {}, value));
  element("facts").hidden = false;
  complain(about.problems);
  for (const event of windows) take(event);
  for (const event of totals) source(event).total = { ...kept(event), isTotal: true };
  element("source").parentNode.hidden = sources.size < 2;
  choose();
  draw();
}

// Fills the list of selectable windows.
function choose() {
  const windows = shown();
  lookAt(windows);
  const one = (window, index) => make("option", { value: String(index) }, `${time(window.start)} to ${time(window.end)}`);
  element("which").replaceChildren(make("option", { value: "all" }, "everything together"), ...windows.map(one));
  element("which").parentNode.hidden = windows.length === 0;
}

element("choices").addEventListener("submit", (event) => event.preventDefault());
element("source").addEventListener("change", (event) => {
  chosen = event.target.value;
  if (held) choose();
  draw();
});
for (const id of ["range", "which"]) element(id).addEventListener("change", draw);
element("pause").addEventListener("click", () => { pause(!paused); draw(); });
darkness.addEventListener("change", () => { for (const it of panels.values()) it.forget(); draw(); });
new ResizeObserver(() => {
  for (const it of panels.values()) if (it.plot) it.plot.setSize({ width: it.body.clientWidth, height: 190 });
}).observe(element("panels"));
if (held) report(held);
else watch();
