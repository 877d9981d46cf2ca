// Windows of each source, as columns of numbers: an hour of windows stays small, and a chart reads a part of a column.

const MAX_WINDOWS = 7200; // of a source
const SLACK = 400; // windows above the maximum before the oldest are discarded, since moving columns takes time

const sources = new Map(); // name -> Source

// Returns the place of the first time after another one, in ascending times.
function firstAfter(times, seconds) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] > seconds) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Values of one figure: `width` numbers a window, NaN for none.
class Column {
  constructor(width, shape, size) {
    // `seen` is the last window with a value, of counts with one that is not zero; `usual` is what the run says is usual.
    Object.assign(this, { width, shape, factor: 1, isRate: shape === "count", usual: NaN, seen: -1, data: new Float64Array(size * width).fill(NaN) });
  }
  resize(size) {
    const data = new Float64Array(size * this.width).fill(NaN);
    data.set(this.data.subarray(0, data.length));
    this.data = data;
  }
  discard(windows, count) {
    this.data.copyWithin(0, windows * this.width, count * this.width);
    this.data.fill(NaN, (count - windows) * this.width);
    this.seen -= windows;
  }
}

class Source {
  constructor(name, isPart) {
    Object.assign(this, { name, isPart, count: 0, size: 1024, columns: new Map(), rankings: [], total: null, whole: null, frozen: null, arrived: 0, names: {}, measured: new Set() });
    // Points of charts with those of gaps; what happened, and the state of the last window that was looked at.
    Object.assign(this, { points: { times: [], indexes: [] }, events: { shades: [], happened: [] }, scanned: 0, was: { rules: [] } });
    this.windows = new Column(4, "window", this.size); // start, end, completeness, number
  }
  start(index) { return this.windows.data[index * 4]; }
  end(index) { return this.windows.data[index * 4 + 1]; }
  isComplete(index) { return this.windows.data[index * 4 + 2] === 1; }
  window(index) { return this.windows.data[index * 4 + 3]; }
  length(index) { return this.end(index) - this.start(index); }

  push(event, figures) {
    if (this.count === MAX_WINDOWS + SLACK) {
      for (const it of [this.windows, ...this.columns.values()]) it.discard(SLACK, this.count);
      this.count -= SLACK;
      this.forgetBefore(this.start(0));
    }
    if (this.count === this.size) {
      this.size = Math.min(this.size * 2, MAX_WINDOWS + SLACK);
      for (const it of [this.windows, ...this.columns.values()]) it.resize(this.size);
    }
    this.windows.data.set([event.start, event.end, event.complete ? 1 : 0, event.window], this.count * 4);
    for (const figure of figures) this.set(figure);
    const rankings = figures.filter((it) => it.ranking);
    for (const { name } of rankings) this.measured.add(name);
    // Only a capture shows rankings of past windows.
    if (capture) {
      this.rankings.push(rankings);
      Object.assign(this.names, event.names);
    } else [this.rankings, this.names] = [[rankings], event.names || {}];
    const { times, indexes } = this.points;
    const before = this.count > 0 ? this.length(this.count - 1) : Infinity;
    if (this.isAfterGap(this.count)) { times.push(event.start); indexes.push(-1); }
    // A long window is flat from where a window like the one before would end: silence is no slope.
    else if (this.length(this.count) > 1.5 * before) { times.push(event.start + before); indexes.push(this.count); }
    times.push(event.end);
    indexes.push(this.count);
    this.count += 1;
    this.arrived = performance.now();
  }
  // Follows the removal of the oldest windows.
  forgetBefore(seconds) {
    const gone = firstAfter(this.points.times, seconds);
    this.points = { times: this.points.times.slice(gone), indexes: this.points.indexes.slice(gone).map((it) => (it < 0 ? it : it - SLACK)) };
    this.scanned = Math.max(0, this.scanned - SLACK);
    this.events = { shades: this.events.shades.filter(([, end]) => end > seconds), happened: this.events.happened.filter(([at]) => at >= seconds) };
  }

  set(figure) {
    const { number: it, count, state, distribution, truth } = figure;
    if (it) this.put(figure, "number", [it.value ?? Infinity, it.low ?? -Infinity, it.high ?? Infinity, truth ?? NaN]);
    else if (count !== undefined) this.put(figure, "count", [count]);
    else if (state !== undefined) this.put(figure, "state", [state ? 1 : 0]);
    else if (distribution) this.put(figure, "distribution", distribution.ranges.map((range) => range.count));
  }
  put(figure, shape, numbers) {
    const { panel, label } = placed(figure);
    const key = `${panel}|${label}`;
    let column = this.columns.get(key);
    if (!column) {
      column = new Column(numbers.length, shape, this.size);
      // Traffic is counted in bytes and read in bits.
      if (figure.name === "traffic") column.factor = 8;
      this.columns.set(key, column);
      this.measured.add(figure.name);
    }
    column.usual = figure.usual === undefined ? column.usual : figure.usual * column.factor;
    if (numbers.length !== column.width) return;
    column.data.set(numbers, this.count * column.width);
    if (shape === "count" ? numbers[0] > 0 : !Number.isNaN(numbers[0])) column.seen = this.count;
  }

  // Returns a number of a window: of counts the rate, which is zero if they were omitted. Part 0 is the estimate, 1 and 2
  // its bounds, 3 the exact value.
  value(column, index, part = 0) {
    const value = column.data[index * column.width + part];
    if (!column.isRate) return value;
    const length = this.length(index);
    return length > 0 ? ((value || 0) * column.factor) / length : NaN;
  }

  // Returns the first window that ends after a time.
  after(seconds) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(middle) > seconds) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  // Whether windows are missing before this one.
  isAfterGap(index) {
    return index > 0 && this.start(index) - this.end(index - 1) > Math.max(this.length(index), this.length(index - 1)) / 2;
  }
  // Whether windows have another length from this one on. A single one may be short or late.
  isOtherLength(index) {
    const [length, before] = [this.length(index), this.length(index - 1)];
    if (index < 2 || index + 1 >= this.count || !(Math.abs(length - before) > 0.2 * before)) return false;
    const alike = (one, other) => Math.abs(one - other) < 0.05 * Math.max(one, other);
    return alike(this.length(index - 2), before) && alike(length, this.length(index + 1));
  }
  // Finds the events of windows that came since the last call: every window is looked at once.
  scan() {
    const { shades, happened } = this.events;
    if (this.scanned === this.count) return this.events;
    const rules = [...this.columns].filter(([key]) => key.startsWith("alert_firing|"));
    const losses = [...this.columns].filter(([key]) => /^(lost|unaccounted)_packets\|/.test(key)).map(([, it]) => it);
    const alarm = this.columns.get("alarm|");
    for (let index = this.scanned; index < this.count; index += 1) {
      const { was } = this, [start, end] = [this.start(index), this.end(index)];
      const is = { alarm: alarm !== undefined && alarm.data[index] === 1, cut: !this.isComplete(index), lost: losses.some(({ data }) => data[index] > 0) };
      is.rules = rules.length === 0 ? rules : rules.filter(([, it]) => it.data[index] === 1).map(([key]) => key.slice("alert_firing|".length));
      const isFirst = this.window(index) === 0;
      // Whether the window before has another length shows once this one is here.
      if (!capture && this.isOtherLength(index - 1)) happened.push([this.start(index - 1), "length", `windows of ${number(this.length(index - 1), "seconds")}, before ${number(this.length(index - 2), "seconds")}`]);
      if (isFirst) happened.push([start, "start", "the run started"]);
      else if (this.isAfterGap(index)) happened.push([this.end(index - 1), "gap", () => `no windows until ${time(start)}`]);
      if (is.alarm && !was.alarm) happened.push([start, "alarm", "possible flood: the alarm was raised"]);
      if (is.lost && !was.lost) happened.push([start, "loss", `packets were lost: ${whole(losses.reduce((sum, { data }) => sum + (data[index] || 0), 0))} in the first window`]);
      if (is.cut && !was.cut && !isFirst && index > 0) happened.push([start, "cut", "the window is incomplete"]);
      for (const rule of is.rules) if (!was.rules.includes(rule)) happened.push([start, "alert", `alert: ${rule}`]);
      for (const kind of ["alarm", "cut", "lost"]) {
        const shade = was[kind] && shades.findLast((it) => it[2] === kind);
        if (is[kind] && shade) shade[1] = end;
        else if (is[kind]) shades.push([start, end, kind]);
      }
      this.was = is;
    }
    this.scanned = this.count;
    return this.events;
  }
  // Returns the rankings of a window: of the last one, or for a capture of the chosen one or of all.
  rankingsOf(view, last) {
    if (!capture) return (view.paused && this.frozen ? this.frozen : this.rankings)[0] || [];
    return (view.isWhole ? this.total : this.rankings[view.index ?? last]) || [];
  }
  flag(name, index) {
    const column = this.columns.get(`${name}|`);
    return Boolean(column) && column.data[index] === 1;
  }
  sum(name, index) {
    let sum = 0;
    for (const [key, column] of this.columns) if (key.startsWith(`${name}|`)) sum += column.data[index] || 0;
    return sum;
  }
}

// Shown windows of one source.
class Span {
  constructor(source, from, until) {
    Object.assign(this, { source, first: source.after(from), behind: source.after(until) });
    this.last = this.behind - 1;
  }
  get isEmpty() { return this.behind <= this.first; }

  // Times of the points of a chart, with one more in each gap, which has no value: a gap is a gap.
  get points() {
    if (this.ends) return this.ends;
    const { times, indexes } = this.source.points;
    let from = this.first === 0 ? 0 : firstAfter(times, this.source.start(this.first));
    while (from < indexes.length && indexes[from] < this.first) from += 1;
    const to = this.behind === this.source.count ? times.length : firstAfter(times, this.source.end(this.last));
    [this.ends, this.indexes] = [times.slice(from, to), indexes.slice(from, to)];
    return this.ends;
  }
  // Length of a window that is neither short nor late.
  get usualLength() {
    if (this.usual === undefined) {
      const lengths = [];
      for (let index = this.first; index < this.behind; index += Math.ceil((this.behind - this.first) / 100)) lengths.push(this.source.length(index));
      this.usual = lengths.sort((one, other) => one - other)[lengths.length >> 1];
    }
    return this.usual;
  }
  // Whether a window is so short that it says little: the first one, or the last of a run.
  isStump(index) { return this.source.length(index) < this.usualLength / 2; }
  // Number of incomplete windows. The first one of a run is always short.
  get incomplete() {
    const { source } = this;
    let count = 0;
    for (let index = this.first; index < this.behind; index += 1) if (!source.isComplete(index) && (capture || source.window(index) > 0)) count += 1;
    return count;
  }
  get lastWhole() {
    let index = this.last;
    while (index > this.first && this.isStump(index)) index -= 1;
    return index;
  }
  // Factors of counts, which are shown as rates.
  get perSecond() {
    if (!this.factors) {
      this.factors = new Float64Array(this.behind - this.first);
      for (let index = this.first; index < this.behind; index += 1) {
        const length = this.source.length(index);
        this.factors[index - this.first] = length > 0 ? 1 / length : NaN;
      }
    }
    return this.factors;
  }
  // Returns the values of a line within the axis. A bound that is infinite has no line.
  values(key, part, least, most) {
    const column = this.source.columns.get(key);
    if (!column) return this.points.map(() => null);
    const values = new Array(this.points.length), { data, width, isRate, factor } = column, { perSecond, first, indexes } = this;
    for (let at = 0; at < values.length; at += 1) {
      const index = indexes[at];
      let value = index < 0 ? NaN : data[index * width + part];
      if (isRate && index >= 0) value = (value || 0) * factor * perSecond[index - first];
      values[at] = !Number.isFinite(value) ? null : value < least ? least : value > most ? most : value;
    }
    return values;
  }
  // Returns the counts of a distribution, and which windows they are of: all of a capture, or the last one.
  distribution(key, view) {
    const { source } = this;
    const { data, width } = source.columns.get(key);
    const index = view.index ?? this.last;
    const counts = new Array(width).fill(0);
    for (let it = view.isWhole ? this.first : index; it <= (view.isWhole ? this.last : index); it += 1) {
      for (let at = 0; at < width; at += 1) counts[at] += data[it * width + at] || 0;
    }
    return [counts, view.isWhole ? "all windows together" : `the window that ended at ${time(source.end(index))}`];
  }
  // Returns the window under a point in time.
  at(seconds) {
    const index = this.source.after(seconds - 1e-6);
    return index >= this.first && index < this.behind && this.source.start(index) <= seconds ? index : -1;
  }

  // Unusual windows, as [start, end, kind], and what happened, as [time, kind, text], within the span.
  get events() {
    if (this.found) return this.found;
    const { shades, happened } = this.source.scan();
    const [from, to] = [this.source.start(this.first), this.source.end(this.last)];
    this.found = { shades: shades.filter(([start, end]) => end > from && start < to), happened: happened.filter(([at]) => at >= from && at <= to) };
    return this.found;
  }
  // Returns since when a condition holds in the last window, or null.
  since(holds) {
    let index = this.last;
    if (index < 0 || !holds(index)) return null;
    while (index > 0 && holds(index - 1)) index -= 1;
    return this.source.start(index);
  }
}
