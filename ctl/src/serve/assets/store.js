// Windows of each source, as columns of numbers: an hour of windows stays small, and a chart reads a part of a column.

const MAX_WINDOWS = 7200; // of a source
const SLACK = 400; // windows above the maximum before the oldest are discarded, since moving columns takes time

const sources = new Map(); // name -> Source

// Values of one figure: `width` numbers a window, NaN for none.
class Column {
  constructor(width, shape, size) {
    Object.assign(this, { width, shape, factor: 1, isRate: shape === "count", data: new Float64Array(size * width).fill(NaN) });
  }
  resize(size) {
    const data = new Float64Array(size * this.width).fill(NaN);
    data.set(this.data.subarray(0, data.length));
    this.data = data;
  }
  discard(windows, count) {
    this.data.copyWithin(0, windows * this.width, count * this.width);
    this.data.fill(NaN, (count - windows) * this.width);
  }
}

class Source {
  constructor(name, isPart) {
    Object.assign(this, { name, isPart, count: 0, size: 1024, columns: new Map(), rankings: [], total: null, frozen: null, arrived: 0 });
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
    }
    if (this.count === this.size) {
      this.size = Math.min(this.size * 2, MAX_WINDOWS + SLACK);
      for (const it of [this.windows, ...this.columns.values()]) it.resize(this.size);
    }
    this.windows.data.set([event.start, event.end, event.complete ? 1 : 0, event.window], this.count * 4);
    for (const figure of figures) this.set(figure);
    const rankings = figures.filter((it) => it.ranking);
    // Only a capture shows rankings of past windows.
    if (capture) this.rankings.push(rankings);
    else this.rankings = [rankings];
    this.count += 1;
    this.arrived = performance.now();
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
    }
    if (numbers.length === column.width) column.data.set(numbers, this.count * column.width);
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
    [this.ends, this.indexes] = [[], []];
    for (let index = this.first; index < this.behind; index += 1) {
      if (index > this.first && this.source.isAfterGap(index)) { this.ends.push(this.source.start(index)); this.indexes.push(-1); }
      this.ends.push(this.source.end(index));
      this.indexes.push(index);
    }
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
  // Returns the values of a line within the axis. A bound that is infinite has no line.
  values(key, part, least, most) {
    const column = this.source.columns.get(key);
    if (!column) return this.points.map(() => null);
    const values = new Array(this.points.length);
    for (let at = 0; at < values.length; at += 1) {
      const index = this.indexes[at];
      const value = index < 0 ? NaN : this.source.value(column, index, part);
      values[at] = !Number.isFinite(value) ? null : Math.min(Math.max(value, least), most);
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

  // Unusual windows, as [start, end, kind], and what happened, as [time, kind, text].
  get events() {
    if (this.found) return this.found;
    const { source } = this;
    const [shades, happened] = [[], []];
    const rules = [...source.columns].filter(([key]) => key.startsWith("alert_firing|"));
    const losses = [...source.columns].filter(([key]) => /^(lost|unaccounted)_packets\|/.test(key));
    let was = { rules: [] };
    for (let index = this.first; index < this.behind; index += 1) {
      const [start, end] = [source.start(index), source.end(index)];
      const is = { alarm: source.flag("alarm", index), cut: !source.isComplete(index), lost: losses.some(([, it]) => it.data[index] > 0) };
      is.rules = rules.length === 0 ? rules : rules.filter(([, it]) => it.data[index] === 1).map(([key]) => key.slice("alert_firing|".length));
      const isFirst = source.window(index) === 0;
      if (isFirst) happened.push([start, "start", "the run started"]);
      else if (index > this.first && source.isAfterGap(index)) happened.push([source.end(index - 1), "gap", `no windows until ${time(start)}`]);
      if (!capture && this.isOtherLength(index)) happened.push([start, "length", `windows of ${number(source.length(index), "seconds")}, before ${number(source.length(index - 1), "seconds")}`]);
      if (is.alarm && !was.alarm) happened.push([start, "alarm", "the alarm was raised"]);
      if (is.lost && !was.lost) happened.push([start, "loss", `packets were lost: ${whole(losses.reduce((sum, [, it]) => sum + (it.data[index] || 0), 0))} in the first window`]);
      if (is.cut && !was.cut && !isFirst && index > 0) happened.push([start, "cut", "the window is incomplete"]);
      for (const rule of is.rules) if (!was.rules.includes(rule)) happened.push([start, "alert", `alert: ${rule}`]);
      for (const kind of ["alarm", "cut", "lost"]) {
        const shade = shades.findLast((it) => it[2] === kind);
        if (is[kind] && was[kind] && shade) shade[1] = end;
        else if (is[kind]) shades.push([start, end, kind]);
      }
      was = is;
    }
    this.found = { shades, happened };
    return this.found;
  }
  // Whether windows have another length from this one on. A single one may be short or late.
  isOtherLength(index) {
    const { source } = this;
    const [length, before] = [source.length(index), source.length(index - 1)];
    if (index - 2 < this.first || index + 1 > this.last || !(Math.abs(length - before) > 0.2 * before)) return false;
    const alike = (one, other) => Math.abs(one - other) < 0.05 * Math.max(one, other);
    return alike(source.length(index - 2), before) && alike(length, source.length(index + 1));
  }
  // Returns since when a condition holds in the last window, or null.
  since(holds) {
    let index = this.last;
    if (index < 0 || !holds(index)) return null;
    while (index > 0 && holds(index - 1)) index -= 1;
    return this.source.start(index);
  }
}
