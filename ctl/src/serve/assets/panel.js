// A panel draws the figures of one name: lines of numbers and counts, a heat map of distributions, a table of rankings, or
// badges of flags. With several sources it has one chart for each, side by side and with one axis.

const MAX_ROWS = 100; // of a table
const MAX_LINES = 8; // of a chart; more are indistinguishable
const HEIGHT = 190;
const COLOURS = ["#2f6feb", "#d97706", "#0d9488", "#c026d3", "#65a30d", "#dc2626", "#7c3aed", "#64748b"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [1, 4], [12, 6], [3, 6]];
// Steps of the axis of time, in seconds.
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
const MARKS = { start: ["S", "start"], gap: ["G", "gap"], length: ["W", "length"], alarm: ["A", "alarm"], loss: ["L", "loss"], cut: ["C", "incomplete"], alert: ["!", "alert"] };

const inOrder = new Intl.Collator("en", { numeric: true }).compare;
const panels = new Map(); // panel name -> Panel
// Created once: each media query object would live until garbage collection.
const darkness = matchMedia("(prefers-color-scheme: dark)");
let isPrinted = false; // on paper everything is drawn, light, and as wide as the paper
const isDark = () => darkness.matches && !isPrinted;
const ink = {}; // colours of the style sheet
function readInk() {
  const style = getComputedStyle(document.body);
  for (const name of ["ink", "faint", "line", "warn", "alarm", "bar"]) ink[name] = style.getPropertyValue(`--${name}`);
}

// Only panels on the screen are drawn.
const onScreen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.panel.isOnScreen = isIntersecting;
    if (isIntersecting && target.panel.isStale) target.panel.draw(view);
  }
}, { rootMargin: "150px" });

class Panel {
  constructor(figure) {
    const { panel: name, title } = placed(figure);
    this.shape = ["number", "count", "state", "distribution", "ranking"].find((shape) => figure[shape] !== undefined);
    const unit = figure.name === "traffic" ? "bits" : figure.unit;
    // Seconds in a second are a share.
    this.unit = this.shape !== "count" ? unit : unit === "seconds" ? "ratio" : `${unit}/s`;
    Object.assign(this, { name, title, figure: figure.name, labels: [], charts: new Map(), isOnScreen: false, isStale: true });
    // Round trips of microseconds and of seconds share a chart.
    this.isLogarithmic = this.shape === "number" && unit === "seconds" && Boolean(figure.labels && figure.labels.percentile);
    this.ranges = figure.distribution ? figure.distribution.ranges : null;
    this.section = sectionOf(figure.name);
    const id = `panel-${name.replaceAll(" ", "-")}`;
    this.heading = make("h3", { id }, this.title);
    this.grid = make("div", { class: this.shape === "ranking" ? "charts rankings" : "charts" });
    this.root = make("div", { class: "panel", role: "group", "aria-labelledby": id }, this.heading, this.grid);
    if (this.isLogarithmic) this.heading.append(make("small", {}, " (logarithmic)"));
    this.root.panel = this;
    this.hide();
    if (this.shape === "state") return;
    if (this.shape !== "ranking") {
      this.table = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${this.title}, as a table` });
      this.details = make("details", {}, make("summary", {}, "as a table"), this.table);
      this.details.addEventListener("toggle", () => this.draw(view));
      this.root.append(this.details);
    }
    const place = (it) => { const at = it.section.figures.indexOf(it.figure); return at < 0 ? 99 : at; };
    const others = [...panels.values()].filter((it) => it.section === this.section && it.shape !== "state");
    const next = others.filter((it) => place(it) > place(this) || (place(it) === place(this) && inOrder(it.name, name) > 0));
    next.sort((one, other) => place(one) - place(other) || inOrder(one.name, other.name));
    element(`panels-${this.section.id}`).insertBefore(this.root, next.length ? next[0].root : null);
    onScreen.observe(this.root);
  }

  see(label) {
    if (this.labels.includes(label)) return;
    this.labels.push(label);
    this.labels.sort(inOrder);
  }
  hide() {
    this.root.hidden = true;
    this.forget();
  }
  forget() {
    for (const it of this.charts.values()) it.remove();
    this.charts.clear();
  }

  draw(view) {
    if (this.shape === "state") return;
    const spans = view.spans.filter((it) => !it.isEmpty);
    const { extra } = this.section;
    const isOff = extra && extra.figures.includes(this.figure) && !element(`extra-${this.section.id}`).checked;
    const lines = isOff || spans.length === 0 ? [] : this.shape === "ranking" || this.shape === "distribution" ? this.labels : this.lines(spans);
    const there = this.shape === "ranking" ? spans.filter((it) => this.ranked(it, view).length > 0) : spans.filter((it) => lines.some((label) => it.source.columns.has(`${this.name}|${label}`)));
    if (lines.length === 0 || there.length === 0 || (this.ranges && !this.spread(there))) { this.hide(); return; }
    this.root.hidden = false;
    this.isStale = !this.isOnScreen && !isPrinted;
    // A panel beyond the screen has its height, so that nothing moves when it is drawn.
    if (this.isStale) return;
    this.root.classList.toggle("wide", there.length > 1);
    for (const [name, chart] of this.charts) if (!there.some((it) => it.source.name === name)) { chart.remove(); this.charts.delete(name); }
    for (const span of there) {
      const { name } = span.source;
      if (!this.charts.has(name)) {
        this.charts.set(name, new Chart(this, name));
        // Sources come in any order.
        const sorted = [...this.charts].sort(([one], [other]) => inOrder(one, other));
        this.grid.replaceChildren(...sorted.map(([, { root }]) => root));
      }
      write(this.charts.get(name).caption, there.length > 1 || view.spans.length > 1 ? name : "");
    }
    if (this.shape === "ranking") { for (const it of there) this.charts.get(it.source.name).rank(this.ranked(it, view), it, view); return; }
    const axis = this.ranges ? null : this.axis(there, lines);
    for (const span of there) {
      const chart = this.charts.get(span.source.name);
      if (this.ranges) chart.heat(span, this.shownRanges, this.most, view);
      else chart.plotLines(span, lines, axis, view);
    }
    if (this.details.open) this.table.replaceChildren(...there.map((it) => this.tabulate(it, lines, view)));
  }

  // Returns the labels of the lines: of counts those that are not always zero.
  lines(spans) {
    return this.labels.filter((label) => spans.some(({ source, first }) => {
      const column = source.columns.get(`${this.name}|${label}`);
      return column && column.seen >= first;
    }));
  }

  // Returns the ends of the axis for all sources: from zero, or powers of ten.
  axis(spans, labels) {
    let [least, most] = [Infinity, 0];
    for (const span of spans) {
      const { source, first, behind, usualLength } = span;
      for (const label of labels.slice(0, MAX_LINES)) {
        const column = source.columns.get(`${this.name}|${label}`);
        if (!column) continue;
        const { data, width, isRate, factor } = column, { perSecond } = span;
        for (let index = first; index < behind; index += 1) {
          const per = perSecond[index - first];
          // The rate of a window that was cut short would hide all others.
          if (isRate && per * usualLength > 5) continue;
          for (let at = index * width; at < (index + 1) * width; at += 1) {
            const value = isRate ? data[at] * factor * per : data[at];
            if (value > 0 && value < least) least = value;
            if (value < Infinity && value > most) most = value;
          }
        }
      }
    }
    if (this.isLogarithmic) return most > 0 ? [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most))] : [1e-6, 1];
    return [0, most > 0 ? most * 1.08 : 1];
  }

  // Finds the ranges that are not empty, and the largest count; returns whether there are any.
  spread(spans) {
    let [low, high] = [this.ranges.length, -1];
    for (const { source, first, behind } of spans) {
      const column = source.columns.get(`${this.name}|`);
      if (!column) continue;
      for (let index = first; index < behind; index += 1) {
        for (let at = 0; at < column.width; at += 1) {
          if (column.data[index * column.width + at] > 0) { if (at < low) low = at; if (at > high) high = at; }
        }
      }
    }
    this.shownRanges = [low, high + 1];
    return high >= 0;
  }

  // Returns the places of round numbers on the axis of ranges, as [place, text].
  places([low, high]) {
    const edges = [];
    for (let at = low; at <= high; at += 1) edges.push(at < this.ranges.length ? this.ranges[at].low : this.ranges[at - 1].high);
    const finite = edges.filter((it) => it !== null && it < Infinity);
    const found = [];
    for (const value of roundNumbers(finite.find((it) => it > 0), finite[finite.length - 1])) {
      const at = finite.findLastIndex((it) => it <= value), [from, to] = [finite[at], finite[at + 1]];
      // Ranges ascend by factors: a place within one follows the logarithm.
      if (at < 0) continue;
      const within = to === undefined ? 0 : from > 0 ? Math.log(value / from) / Math.log(to / from) : value / to;
      found.push([low + at + within, tick(value, this.unit)]);
    }
    const step = Math.ceil(found.length / 10);
    if (found.length > 1) return found.filter((_, index) => index % step === 0);
    return finite.filter((_, index) => index % Math.ceil(finite.length / 6) === 0).map((it) => [low + finite.indexOf(it), number(it, this.unit)]);
  }

  ranked({ source, last }, view) {
    const all = source.rankingsOf(view, last);
    return all.filter((figure) => placed(figure).panel === this.name);
  }

  tabulate(span, labels, view) {
    const { source } = span;
    const caption = view.spans.length > 1 ? `${source.name}: ` : "";
    if (this.ranges) return this.tabulateRanges(span, caption, view);
    const columns = labels.map((label) => [label || this.title, source.columns.get(`${this.name}|${label}`)]).filter(([, it]) => it);
    const parts = (column) => (column.width === 1 ? [0] : this.hasTruth(column, span) ? [0, 1, 2, 3] : [0, 1, 2]);
    const head = columns.flatMap(([label, column]) => parts(column).map((part) => label + ["", " low", " high", " exact"][part]));
    const rows = [];
    for (let index = span.last; index >= span.first && rows.length < MAX_ROWS; index -= 1) {
      const marks = `${source.isComplete(index) ? "" : "*"}${source.flag("alarm", index) ? "!" : ""}`;
      const cells = columns.flatMap(([, column]) => parts(column).map((part) => source.value(column, index, part)));
      rows.push(row(time(source.end(index)) + marks, ...cells.map((it) => (Number.isNaN(it) ? "" : number(it, this.unit)))));
    }
    const count = span.behind - span.first;
    const which = count > rows.length ? `the last ${rows.length} of ${count} windows` : "all windows shown";
    return table(["end of the window", ...head], rows, `${caption}${which}; * incomplete, ! alarm`);
  }
  tabulateRanges(span, caption, view) {
    const [counts, which] = span.distribution(`${this.name}|`, view);
    const all = counts.reduce((sum, it) => sum + it, 0);
    const rows = [];
    for (let at = this.shownRanges[0]; at < this.shownRanges[1]; at += 1) {
      const { low, high } = this.ranges[at];
      rows.push(row(quantity(low, this.unit, low, high).interval || number(low, this.unit), whole(counts[at]), number(all ? counts[at] / all : 0, "ratio")));
    }
    return table(["from … to", "number", "share"], rows, caption + which);
  }
  hasTruth(column, span) {
    return column.width > 3 && !Number.isNaN(column.data[span.last * column.width + 3]);
  }
}

class Chart {
  constructor(panel, name) {
    this.panel = panel;
    this.caption = make("h4");
    this.now = make("p", { class: "now" });
    const isRanking = panel.shape === "ranking";
    this.body = make("div", isRanking ? { class: "scroll ranking", tabindex: "0", role: "region", "aria-label": `${panel.title}, ${name}` } : { class: "plot", "aria-hidden": "true" });
    this.root = make("div", { class: "chart" }, this.caption, this.now, this.body);
    panel.grid.append(this.root);
    this.root.chart = this;
    if (!isRanking) widths.observe(this.root);
  }
  remove() {
    widths.unobserve(this.root);
    if (this.plot) this.plot.destroy();
    this.root.remove();
  }
  // Builds a plot, unless the present one has the same lines.
  build(key, options, data) {
    const wanted = `${key} ${isDark()} ${isPrinted}`;
    if (this.plot && this.built === wanted) { this.plot.setData(data); return; }
    if (this.plot) this.plot.destroy();
    this.built = wanted;
    const axis = { stroke: ink.faint, grid: { stroke: ink.line, width: 1 }, ticks: { stroke: ink.line, width: 1 } };
    const room = (_, all) => Math.max(56, ...(all || []).map((it) => 16 + 7 * (it || "").length));
    const times = (_, all, axis, space, step) => all.map((it) => time(it, step));
    this.plot = new uPlot({
      width: this.body.clientWidth || 320, height: HEIGHT, padding: [8, 28, 0, 0], series: options.series,
      axes: [{ ...axis, values: times, incrs: STEPS, space: 80, size: 30 }, { ...axis, size: room, ...options.axis }],
      scales: { x: { range: () => [view.from, view.to] }, y: options.scale },
      cursor: { drag: { x: false, y: false }, points: { show: options.series.length > 1 && !options.draw }, sync: { key: "cursor", scales: ["x", null], setSeries: false } },
      legend: { show: false },
      tzDate: date,
      hooks: {
        drawClear: [() => this.shade()],
        drawAxes: [(plot) => this.fillIntervals(plot)],
        draw: [(plot) => { if (options.draw) options.draw(plot); this.mark(); }],
        setCursor: [({ cursor }) => this.point(cursor)],
      },
    }, data, this.body);
    if (capture) this.plot.over.addEventListener("click", () => { if (this.pointed >= 0) choose(this.pointed); });
  }
  // Shows the values under the cursor, or else the last ones.
  point({ idx, left }) {
    const index = idx === null || idx === undefined || left < 0 ? -1 : this.span.at(this.plot.posToVal(left, "x"));
    this.pointed = index;
    this.showValues(index < 0 ? this.span.last : index, index >= 0);
  }

  plotLines(span, labels, axis) {
    const { panel } = this;
    const shown = labels.filter((label) => span.source.columns.has(`${panel.name}|${label}`));
    Object.assign(this, { span, axis, labels: shown.slice(0, MAX_LINES), omitted: Math.max(0, shown.length - MAX_LINES) });
    const data = [span.points], series = [{}];
    for (const label of this.labels) {
      const key = `${panel.name}|${label}`, column = span.source.columns.get(key);
      const index = panel.labels.indexOf(label) % MAX_LINES, stroke = COLOURS[index];
      const line = (part, options) => { series.push({ points: { show: false }, ...options }); data.push(span.values(key, part, ...axis)); };
      line(0, { stroke, width: 2, dash: DASHES[index], points: { show: span.behind - span.first < 2, size: 6, fill: stroke } });
      if (column.width > 3 && panel.hasTruth(column, span)) line(3, { stroke: ink.ink, width: 1, dash: [1, 2] });
    }
    const scale = { distr: panel.isLogarithmic ? 3 : 1, range: () => this.axis };
    // uPlot's filter drops numbers by their digits.
    const logarithmic = { splits: () => roundNumbers(...this.axis), filter: (_, all) => all, values: (_, all) => all.map((it) => tick(it, panel.unit)) };
    const linear = { values: (_, all) => axisNumbers(all, panel.unit), ...(panel.unit === "seconds" && { splits: () => roundSteps(this.axis[1]) }) };
    this.build(`${this.labels.join("|")} ${series.length} ${span.behind - span.first < 2}`, { series, scale, axis: panel.isLogarithmic ? logarithmic : linear }, data);
    if (!(this.pointed >= 0)) this.showValues(span.last, false);
  }

  showValues(index, isPointed) {
    const { panel, span } = this;
    if (panel.ranges) { this.showRanges(index, isPointed); return; }
    // Elements are made once for the same lines, and then written.
    const key = `${this.labels.map((label) => `${label} ${panel.labels.indexOf(label)}`).join("|")} ${this.omitted}`;
    if (this.valuesOf !== key) {
      this.valuesOf = key;
      this.texts = this.labels.map((label) => {
        const [value, more] = [make("b"), make("span")];
        return { value, more, one: make("span", { class: "one" }, swatch(panel.labels.indexOf(label) % MAX_LINES), label ? `${label} ` : "", value, more) };
      });
      this.pointedAt = make("span");
      const parts = this.texts.flatMap(({ one }) => [one, " "]);
      if (this.omitted) parts.push(`and ${this.omitted} more in metrics `);
      this.now.replaceChildren(...parts, this.pointedAt);
    }
    this.labels.forEach((label, at) => {
      const column = span.source.columns.get(`${panel.name}|${label}`);
      const part = (part) => (part < column.width ? span.source.value(column, index, part) : NaN);
      const it = quantity(part(0), panel.unit, ...(column.width > 1 ? [part(1), part(2)] : []));
      write(this.texts[at].value, it.value);
      const truth = part(3);
      write(this.texts[at].more, (it.interval ? ` (${it.interval})` : "") + (Number.isNaN(truth) ? "" : `, exact ${number(truth, panel.unit)}`));
    });
    write(this.pointedAt, isPointed ? `at ${time(span.source.end(index))}` : "");
  }

  // Fills the intervals of the lines, one path each. uPlot's bands take two more lines, and copies of their paths.
  fillIntervals({ ctx, bbox, scales: { x } }) {
    const { panel, span, axis } = this;
    if (!axis) return;
    const { points, indexes } = span, place = panel.isLogarithmic ? Math.log10 : (it) => it;
    const [bottom, top] = axis.map(place), [least, most] = axis;
    const height = (value) => bbox.top + bbox.height * (1 - (place(value < least ? least : value > most ? most : value) - bottom) / (top - bottom));
    const pixel = (at) => Math.round(bbox.left + (bbox.width * (points[at] - x.min)) / (x.max - x.min));
    ctx.save();
    for (const label of this.labels) {
      const { data, width } = span.source.columns.get(`${panel.name}|${label}`);
      if (width < 4) continue;
      ctx.fillStyle = `${COLOURS[panel.labels.indexOf(label) % MAX_LINES]}2b`;
      ctx.beginPath();
      // Upper edges forwards, then the lower ones backwards; of windows in one column of pixels the widest interval.
      let lower = [];
      const back = () => { for (let it = lower.length - 1; it > 0; it -= 2) ctx.lineTo(lower[it - 1], height(lower[it])); lower = []; };
      for (let at = 0; at < points.length;) {
        const column = pixel(at);
        let [low, high] = [Infinity, -Infinity];
        for (; at < points.length && pixel(at) === column; at += 1) {
          const start = indexes[at] * width, [one, other] = [data[start + 1], data[start + 2]];
          if (start < 0 || !(Number.isFinite(one) && Number.isFinite(other))) continue;
          if (one < low) low = one;
          if (other > high) high = other;
        }
        if (low > high) { back(); continue; }
        if (lower.length === 0) ctx.moveTo(column, height(low));
        ctx.lineTo(column, height(high));
        lower.push(column, low);
      }
      back();
      ctx.fill();
    }
    ctx.restore();
  }

  // Draws a distribution over time: darker where there are more.
  heat(span, ranges) {
    const { panel } = this;
    Object.assign(this, { span, rows: ranges });
    const places = new Map(panel.places(ranges));
    const splits = () => [...places.keys()], values = (_, all) => all.map((at) => places.get(at) ?? "");
    const options = { series: [{}, { stroke: "transparent", points: { show: false } }], scale: { range: () => this.rows }, axis: { splits, values }, draw: (plot) => this.paint(plot) };
    this.build(ranges.join(), options, [span.points, span.points.map(() => null)]);
    if (!(this.pointed >= 0)) this.showValues(span.last, false);
  }
  paint({ ctx, bbox, scales }) {
    const { source, first, behind } = this.span;
    const column = source.columns.get(`${this.panel.name}|`);
    const [low, high] = this.rows, height = high - low, width = Math.min(240, Math.max(1, Math.round(bbox.width / 3)));
    const { min, max } = scales.x;
    const sums = new Float64Array(width * height), windows = new Float64Array(width);
    for (let index = first; index < behind; index += 1) {
      const place = (it) => ((it - min) / (max - min)) * width;
      const from = Math.min(width - 1, Math.max(0, Math.round(place(source.start(index))))), to = Math.min(width, Math.max(from + 1, Math.round(place(source.end(index)))));
      for (let x = from; x < to; x += 1) windows[x] += 1;
      for (let at = low; at < high; at += 1) {
        const count = column.data[index * column.width + at];
        if (!(count > 0)) continue;
        for (let x = from; x < to; x += 1) {
          sums[(high - 1 - at) * width + x] += count;
        }
      }
    }
    // The mean of the windows in a column, whose number varies by one.
    let most = 0;
    for (let at = 0; at < sums.length; at += 1) {
      if (sums[at] > 0) sums[at] /= windows[at % width];
      if (sums[at] > most) most = sums[at];
    }
    this.image = this.image || document.createElement("canvas");
    if (this.image.width !== width || this.image.height !== height) [this.image.width, this.image.height] = [width, height];
    const painter = this.image.getContext("2d"), pixels = painter.createImageData(width, height);
    const [red, green, blue] = isDark() ? [125, 175, 255] : [20, 70, 190];
    sums.forEach((sum, at) => { if (sum > 0) pixels.data.set([red, green, blue, 40 + 215 * (Math.log1p(sum) / Math.log1p(most))], at * 4); });
    painter.putImageData(pixels, 0, 0);
    ctx.save();
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.image, bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.restore();
  }
  showRanges(index, isPointed) {
    const { panel, span } = this;
    const column = span.source.columns.get(`${panel.name}|`);
    let [sum, most] = [0, -1];
    for (let at = 0; at < column.width; at += 1) {
      const count = column.data[index * column.width + at] || 0;
      sum += count;
      if (count > 0 && (most < 0 || count > column.data[index * column.width + most])) most = at;
    }
    const range = most < 0 ? null : panel.ranges[most];
    const text = range ? ` values, most of them ${quantity(range.low, panel.unit, range.low, range.high).interval || number(range.low, panel.unit)}` : " values";
    this.now.replaceChildren(make("b", {}, whole(sum)), text, isPointed ? ` at ${time(span.source.end(index))}` : "");
  }

  // Shades unusual windows.
  shade() {
    const { ctx, bbox } = this.plot;
    ctx.save();
    for (const [start, end, kind] of this.span.events.shades) {
      const [left, right] = [Math.max(start, view.from), end].map((at) => this.plot.valToPos(at, "x", true));
      if (right < bbox.left) continue;
      [ctx.fillStyle, ctx.globalAlpha] = [kind === "alarm" ? ink.alarm : kind === "lost" ? ink.warn : ink.faint, 0.18];
      ctx.fillRect(left, bbox.top, Math.max(right - left, 1), bbox.height);
    }
    ctx.restore();
  }
  // Marks what happened.
  mark() {
    const { ctx, bbox } = this.plot;
    const pixels = devicePixelRatio;
    const end = bbox.left + bbox.width;
    let written = -Infinity;
    ctx.save();
    ctx.font = `${11 * pixels}px system-ui, sans-serif`;
    const marks = this.span.events.happened.map(([at, kind]) => [Math.round(this.plot.valToPos(at, "x", true)), kind]);
    const shown = marks.filter(([x]) => x >= bbox.left && x <= end).sort(([one], [other]) => one - other);
    shown.forEach(([x, kind], index) => {
      ctx.strokeStyle = ctx.fillStyle = kind === "alarm" || kind === "alert" ? ink.alarm : kind === "loss" ? ink.warn : ink.faint;
      ctx.setLineDash([3 * pixels, 3 * pixels]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      // Texts on top of each other cannot be read: the word is beside its letter where there is room.
      const next = index + 1 < shown.length ? shown[index + 1][0] : end;
      const texts = [MARKS[kind].join(" "), MARKS[kind][0]].map((text) => [text, ctx.measureText(text).width + 4 * pixels]);
      for (const isLeft of [false, true]) {
        const found = texts.find(([, width]) => (isLeft ? x - width >= Math.max(written, bbox.left) : x >= written && x + width <= next));
        if (!found) continue;
        ctx.textAlign = isLeft ? "right" : "left";
        ctx.fillText(found[0], x + (isLeft ? -2 : 2) * pixels, bbox.top + 10 * pixels);
        written = isLeft ? x : x + found[1];
        break;
      }
    });
    ctx.restore();
  }

  rank(figures, span, view) {
    // An unchanged ranking is not built again, so that a selection in it stays.
    if (this.ranked === figures[0]) return;
    [this.ranked] = figures;
    const tables = figures.map((figure) => {
      const most = Math.max(...figure.ranking.map((it) => it.number.value), Number.MIN_VALUE);
      const hasMore = figure.ranking.some((it) => it.more), isFlag = FLAGS.includes(figure.name);
      const rows = figure.ranking.map(({ name, number: it, more }, index) => {
        const bar = make("span", { class: "bar", "aria-hidden": "true" });
        bar.style.width = `${(it.value / most) * 100}%`;
        const { value, interval } = quantity(it.value, figure.unit, it.low ?? -Infinity, it.high ?? Infinity);
        const cells = [...(isFlag ? [] : [value, interval || "exact"]), ...(hasMore ? [more || ""] : [])];
        return row(String(index + 1), make("td", { class: "name", title: span.source.names[name] || name }, span.source.names[name] || name, isFlag ? "" : bar), ...cells);
      });
      const { key, by, of } = figure.labels || {};
      const head = ["rank", key || "which", ...(isFlag ? [] : [by || (of && `distinct ${of}`) || (figure.unit === "ratio" ? "share" : "packets"), "bounds"]), ...(hasMore ? [figure.name === "heavy_flows" ? "share" : "note"] : [])];
      return table(head, rows);
    });
    this.body.replaceChildren(...(figures.some((it) => it.ranking.length) ? tables : ["none"]));
    write(this.now, view.isWhole ? "in all windows together" : `in the window that ended at ${time(span.source.end(view.index ?? span.last))}`);
  }
}

// Charts follow the width of their panel.
const widths = new ResizeObserver((entries) => {
  for (const { target: { chart } } of entries) {
    const width = chart.body.clientWidth;
    if (chart.plot && width && width !== chart.plot.width) chart.plot.setSize({ width, height: HEIGHT });
  }
});

// A sample of a line's style, for the legend.
function swatch(index) {
  const line = vector("line", { x1: 0, y1: 4, x2: 22, y2: 4, stroke: COLOURS[index], "stroke-width": 2.5, "stroke-dasharray": DASHES[index].join(" ") });
  return vector("svg", { width: 22, height: 8, "aria-hidden": "true", class: "swatch" }, line);
}
