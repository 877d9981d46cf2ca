// The first screen, the controls, and the connection to a run; or the windows of a report that is in this page.

const SIDE_BY_SIDE = "\n"; // no name of a source
const BINS = 60; // of a tile's course
const POLL_MS = 500; // between questions whether the run answers
const ANSWER_MS = 1300; // after which a run without an answer is reported, within two seconds

let chosen = null, paused = null, isBehind = !capture, isDirty = false, run = null, host = "";
let problems = [], problemsSince = null, answered = Date.now() / 1000, deadSince = null, stream = null;
let view = { spans: [], from: 0, to: 1 };
const wanted = new URLSearchParams(location.search);

function sourceOf(event) {
  const name = event.source + ({ ingress: " in", egress: " out" }[event.direction] || "");
  if (!sources.has(name)) {
    sources.set(name, new Source(name, event.part));
    listSources();
  }
  return sources.get(name);
}

const inNames = () => [...sources.values()].sort((one, other) => inOrder(one.name, other.name));
// Lists the sources to choose from. The union of all is chosen first, or else all side by side.
function listSources() {
  const all = inNames();
  const options = all.map(({ name }) => make("option", { value: name }, name));
  if (all.length > 1) options.unshift(make("option", { value: SIDE_BY_SIDE }, "all, side by side"));
  const whole = all.filter((it) => !it.isPart);
  const asked = wanted.get("source") === "*" ? SIDE_BY_SIDE : wanted.get("source");
  chosen = sources.has(asked) || (asked === SIDE_BY_SIDE && all.length > 1) ? asked : whole.length === 1 ? whole[0].name : all.length > 1 ? SIDE_BY_SIDE : all[0].name;
  element("source").replaceChildren(...options);
  element("source").value = chosen;
  element("source").parentNode.hidden = all.length < 2;
}

function take(event) {
  const figures = [...event.figures, ...derived(event)];
  sourceOf(event).push(event, figures);
  for (const figure of figures) {
    const { panel, label } = placed(figure);
    if (!panels.has(panel)) panels.set(panel, new Panel(figure));
    panels.get(panel).see(label);
  }
  isDirty = true;
}

// Returns what is shown: the spans of the chosen sources, and the ends of all axes of time.
function look() {
  const until = paused ?? Infinity;
  const all = inNames().map((source) => new Span(source, -Infinity, until)).filter((it) => !it.isEmpty);
  const shown = all.filter((it) => chosen === SIDE_BY_SIDE || it.source.name === chosen);
  const seconds = capture ? 0 : Number(element("range").value);
  const to = Math.max(...shown.map(({ source, last }) => source.end(last)));
  const from = Math.max(Math.min(...shown.map(({ source, first }) => source.start(first))), seconds ? to - seconds : -Infinity);
  const cut = (it) => new Span(it.source, from, until);
  const spans = shown.map(cut);
  times.isLong = to - from > 86400;
  times.isFine = spans.some(({ source, last }) => source.length(last) < 1);
  const which = element("which").value;
  return { spans, all: all.map((it) => spans.find((span) => span.source === it.source) || cut(it)), from, to, paused, isWhole: capture && which === "all", index: capture && which !== "all" && which !== "" ? Number(which) : null };
}

function draw() {
  isDirty = false;
  view = look();
  if (view.spans.length === 0) { judge(); return; }
  for (const id of ["sections", "contents"]) element(id).hidden = false;
  drawTiles();
  judge();
  drawEvents();
  for (const it of panels.values()) it.draw(view);
  for (const it of SECTIONS) drawSection(it);
  const { source, last } = view.spans[0];
  const windows = view.spans.reduce((sum, it) => sum + it.behind - it.first, 0);
  const ended = `last window ended ${moment(view.to, 1)}`;
  write(element("state"), capture ? between(view.from, view.to) : `${paused === null ? "" : "paused; "}${ended}; ${windows} windows of ${number(source.length(last), "seconds")}`);
}

// Tiles.

class Tile {
  constructor(tile) {
    this.tile = tile;
    [this.title, this.value, this.bounds, this.change] = [make("span"), make("b"), make("span", { class: "bounds" }), make("span", { class: "change" })];
    this.path = vector("path", { d: "" });
    const spark = vector("svg", { class: "spark", viewBox: `0 0 ${BINS} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.path);
    this.root = make("a", { class: "tile", href: `#${tile.section}` }, this.title, this.value, this.bounds, spark, this.change);
  }
  // Returns the keys of the columns that the tile shows, and finds the label of a number.
  keys({ columns }) {
    if (this.known === columns.size) return this.found;
    const { counts, numbers, ends = "" } = this.tile;
    const keys = [...columns.keys()];
    const first = (numbers || []).map((start) => keys.find((key) => key.startsWith(start) && key.endsWith(ends))).find(Boolean);
    this.found = numbers ? (first ? [first] : []) : keys.filter((key) => counts.includes(key.split("|")[0]));
    this.known = columns.size;
    this.label = first ? first.split("|")[0].split(" ").slice(1).join(" ") || first.split("|")[1] : "";
    return this.found;
  }
  draw(span) {
    const { tile: { title, unit, numbers, measured, id } } = this, { source, first, behind } = span;
    const keys = this.keys(source), columnsOf = (from) => keys.map((key) => from.columns.get(key)).filter(Boolean);
    const columns = columnsOf(source);
    write(this.title, this.label && id !== "order" ? `${title}, ${this.label}` : title);
    const off = numbers && columns.length === 0;
    const isMeasured = measured && source.measured.has(measured);
    this.isOff = off && !isMeasured;
    if (off) {
      write(this.value, isMeasured ? "none" : "off");
      write(this.bounds, "");
      write(this.change, isMeasured ? "" : "not measured");
      return;
    }
    const { perSecond } = span;
    const count = behind - first, size = Math.max(1, Math.ceil(count / BINS));
    // The first number of each window; of several counts the sum.
    const values = new Float64Array(count);
    for (const { data, width, isRate, factor } of columns) {
      for (let at = 0; at < count; at += 1) values[at] += isRate ? (data[first + at] || 0) * factor * perSecond[at] : data[(first + at) * width];
    }
    const bins = [];
    // From the last window backwards, so that the bins stay equal while the first is cut.
    for (let end = behind; end > first; end -= size) {
      let [sum, there] = [0, 0];
      for (let index = Math.max(first, end - size); index < end; index += 1) {
        const value = values[index - first];
        const weight = numbers ? 1 : source.length(index);
        if (Number.isFinite(value) && !span.isStump(index)) { sum += value * weight; there += weight; }
      }
      bins.unshift(there ? sum / there : NaN);
    }
    // Some numbers of windows have no number of all of them.
    const isAll = view.isWhole && source.whole !== null && columnsOf(source.whole).length > 0;
    const [from, at] = isAll ? [source.whole, 0] : [source, view.isWhole ? span.lastWhole : view.index ?? span.lastWhole];
    const shown = columnsOf(from), part = (part) => from.value(shown[0], at, part);
    const value = shown.length === 0 ? NaN : numbers ? part(0) : shown.reduce((sum, it) => sum + from.value(it, at), 0);
    const { value: text, interval } = quantity(value, unit, ...(numbers && shown.length ? [part(1), part(2)] : []));
    write(this.value, text);
    write(this.bounds, interval);
    const most = Math.max(...bins.filter((it) => !Number.isNaN(it)), Number.MIN_VALUE);
    let line = "";
    bins.forEach((it, at) => {
      if (!Number.isNaN(it)) line += `${line === "" || Number.isNaN(bins[at - 1]) ? "M" : "L"}${(((at + 0.5) * BINS) / bins.length).toFixed(1)} ${(9.5 - (it / most) * 9).toFixed(2)}`;
    });
    if (this.line !== line) this.path.setAttribute("d", this.line = line);
    // Of several counts the sum, where the run knows it.
    const usuals = columns.map((it) => it.usual).filter((it) => !Number.isNaN(it));
    const usual = usuals.length ? usuals.reduce((sum, it) => sum + it) : NaN, change = (value - usual) / usual;
    this.change.classList.toggle("odd", id === "drops" && value > 0);
    const percent = Math.abs(change) >= 10 ? `× ${(change + 1).toFixed(0)}` : `${change > 0 ? "+" : "−"}${Math.abs(change * 100).toFixed(0)} %`;
    if (id === "drops") {
      let lost = 0;
      for (let index = first; index < behind; index += 1) lost += values[index - first] * source.length(index);
      write(this.change, lost > 0 ? `${whole(lost)} in all` : "none");
    } else if (view.isWhole) write(this.change, isAll ? "in all" : "in the last window");
    else if (Number.isNaN(usual)) write(this.change, capture ? "" : "no history yet");
    else if (!(usual > 0) || Number.isNaN(value)) write(this.change, "");
    else write(this.change, Math.abs(change) < 0.01 ? "as usual" : `${percent}, usual ${number(usual, unit)}`);
  }
}

const groups = new Map(); // source name -> { root, heading, tiles }
const board = element("tiles");
// As a panel, it is drawn while it is on the screen.
Object.assign(board, { panel: board, isOnScreen: true, draw: drawTiles });
onScreen.observe(board);
function drawTiles() {
  board.isStale = !board.isOnScreen && !isPrinted;
  if (board.isStale) return;
  for (const [name, { root }] of groups) if (!view.spans.some((it) => it.source.name === name)) { root.remove(); groups.delete(name); }
  const isMany = view.spans.length > 1;
  board.className = isMany ? "many" : "";
  for (const span of view.spans) {
    const { name } = span.source;
    if (!groups.has(name)) {
      const only = make("button", { type: "button" }, name);
      only.addEventListener("click", () => { element("source").value = name; change(); });
      const tiles = TILES.map((it) => new Tile(it));
      const heading = make("h2", {}, only);
      const root = make("div", { class: "group", role: "group", "aria-label": name }, heading, make("div", { class: "tiles" }, ...tiles.map((it) => it.root)));
      groups.set(name, { root, heading, tiles });
    }
    const { root, heading, tiles } = groups.get(name);
    if (!root.isConnected) board.insertBefore(root, [...groups].filter(([other, it]) => it.root.isConnected && inOrder(other, name) > 0).map(([, it]) => it.root)[0] || null);
    heading.hidden = !isMany;
    for (const it of tiles) it.draw(span);
  }
  // A tile that no source has only says how to get it.
  TILES.forEach((_, index) => {
    const all = [...groups.values()].map(({ tiles }) => tiles[index]);
    for (const it of all) it.root.hidden = isMany && all.every((other) => other.isOff);
  });
}

// Lists what happened, which the marks on charts show to those who see them.
function drawEvents() {
  const isMany = view.spans.length > 1;
  const all = view.spans.flatMap((span) => span.events.happened.map(([at, , text]) => [at, `${time(at)}${isMany ? ` ${span.source.name}` : ""}: ${typeof text === "function" ? text() : text}`]));
  all.sort(([one], [other]) => other - one);
  element("events").hidden = all.length === 0;
  write(element("events").firstElementChild, `${all.length} event${all.length === 1 ? "" : "s"} in the time shown`);
  const texts = element("events").open ? all.slice(0, MAX_ROWS).map(([, text]) => text) : [];
  const shown = texts.join("\n");
  if (drawEvents.shown === shown) return;
  drawEvents.shown = shown;
  element("events").lastElementChild.replaceChildren(...texts.map((text) => make("li", {}, text)));
}

// The state of the run.

// Returns what is unusual, as [level, text, details], and what was, both without the names of sources.
function findings(span) {
  const at = (seconds) => time(seconds, 1);
  const { source, first, behind, last } = span;
  const found = [], notes = [];
  const { shades, happened } = span.events;
  const ofKind = (kind) => shades.filter((it) => it[2] === kind);
  const alarm = span.since((index) => source.flag("alarm", index)), alarms = ofKind("alarm");
  if (capture && alarms.length) found.push([2, `possible flood: sources up${victim(span)}; alarm in ${countOf(span, "alarm")} of ${behind - first} windows, first at ${at(alarms[0][0])}`]);
  else if (alarm !== null) found.push([2, `possible flood since ${at(alarm)}: sources up${victim(span)}`, moved(span)]);
  else if (alarms.length) notes.push(`an alarm ended at ${at(alarms[alarms.length - 1][1])}`);
  for (const [key, column] of source.columns) {
    if (column.data[last] !== 1) continue;
    if (key.startsWith("alert_firing|")) found.push([2, `alert since ${at(span.since((index) => column.data[index] === 1))}: ${key.slice(13)}`]);
    if (key.startsWith("full|")) found.push([1, `counters of ${key.slice(5)} are full; shorter windows give better numbers`]);
  }
  const losses = ofKind("lost"), lost = losses[losses.length - 1];
  if (lost && lost[1] === source.end(last)) found.push([2, `packets are lost since ${at(lost[0])}: ${whole(source.sum("lost_packets", last) + source.sum("unaccounted_packets", last))} in the last window`]);
  else if (lost) notes.push(`packets were lost until ${at(lost[1])}`);
  const late = source.sum("late_packets", last);
  if (late > 0) found.push([1, `${whole(late)} packets came too late for their window`]);
  if (!capture && !source.isComplete(last) && !span.isStump(last) && behind - first > 1) found.push([1, "the last window is incomplete"]);
  const cut = span.incomplete;
  if (cut > 0) notes.push(`${cut}${capture ? "" : ` of ${behind - first}`} ${cut === 1 && capture ? "window" : "windows"} ${cut === 1 ? "is" : "are"} incomplete`);
  const gap = happened.findLast(([, kind]) => kind === "gap");
  if (gap) notes.push(`windows are missing from ${at(gap[0])}`);
  const silent = (performance.now() - source.arrived) / 1000;
  if (!capture && paused === null && deadSince === null && silent > 2 * source.length(last) + 2) found.push([1, `no window since ${at(source.end(last))}`]);
  return { found, notes };
}

function judge() {
  const at = (seconds) => time(seconds, 1);
  const all = view.all || [];
  // A finding that several sources share is reported once.
  const names = new Map();
  const add = (key, source) => names.set(key, [...(names.get(key) || []), source.name]);
  for (const span of all) {
    const { found, notes } = findings(span);
    for (const it of found) add(JSON.stringify(it), span.source);
    for (const it of notes) add(JSON.stringify([-1, it]), span.source);
  }
  const found = [], notes = [];
  for (const [key, whose] of names) {
    const [level, text, more] = JSON.parse(key);
    const named = all.length > 1 ? `${whose.length === all.length ? "all sources" : whose.join(", ")}: ${text}` : text;
    if (level < 0) notes.push(named);
    else found.push([level, named, more]);
  }
  for (const it of problems) found.push([2, `${it}${problemsSince === null ? "" : ` (since ${at(problemsSince)} or before)`}`]);
  found.sort((one, other) => other[0] - one[0]);
  const isDead = deadSince !== null;
  const asOf = all.length ? ` What is shown is as of ${at(Math.max(...all.map(({ source, last }) => source.end(last))))}.` : "";
  if (isDead) found.unshift([2, `no answer from flowgauge since ${at(deadSince)}; trying again.${asOf}`]);
  const [worst] = found;
  const past = [...sources.values()].reduce((sum, it) => sum + it.count, 0);
  const nothing = capture ? "no packets" : isBehind ? `reading past windows: ${past}` : "no window has ended yet";
  // Without a judged window, nothing is known to be usual.
  const isJudged = all.some(({ source }) => (source.columns.get("alarm|")?.seen ?? -1) >= 0);
  const fine = `${capture ? (isJudged ? "nothing unusual" : "the alarm judged no window") : "healthy"}${notes.length ? `${capture ? "" : " now"}; ${notes.join("; ")}` : ": nothing lost, no window late or incomplete"}`;
  element("verdict").className = [worst ? ["good", "warn", "bad"][worst[0]] : all.length && (isJudged || !capture) ? "good" : "", isDead ? "dead" : ""].join(" ").trim();
  document.body.classList.toggle("dead", isDead);
  write(element("line"), capital(worst ? worst[1] : all.length ? fine : nothing));
  // Details change with every window, and are not announced.
  const others = worst ? found.slice(1).map(([, text, more]) => capital(text) + (more ? `: ${more}` : "")) : [];
  const details = worst ? [worst[2], ...others, ...(isDead ? [] : notes.map(capital))].filter(Boolean).map(capital) : [];
  element("problems").hidden = details.length === 0;
  if (element("problems").children.length !== details.length) element("problems").replaceChildren(...details.map(() => make("li")));
  details.forEach((it, index) => write(element("problems").children[index], it));
  const name = `${host}${host ? ": " : ""}flowgauge`;
  if (!capture) document.title = worst ? `(!) ${name}` : name;
}
function countOf({ source, first, behind }, flag) {
  let count = 0;
  for (let index = first; index < behind; index += 1) if (source.flag(flag, index)) count += 1;
  return count;
}
// Flows that rose in an alarm: by packets first, then by distinct others.
const allRisen = (rankings) => ["alarm_flows", "alarm_fan_out"].flatMap((risen) => rankings.filter(({ name, ranking }) => name === risen && ranking.length > 0));
const risenOf = (rankings) => allRisen(rankings)[0];
// Returns the flow that rose most in an alarm; for a capture, the one that did so in most windows.
function victim({ source, first, behind, last }) {
  const windows = [];
  if (!capture) windows.push(source.rankingsOf(view, last));
  else for (let index = first; index < behind; index += 1) if (source.flag("alarm", index)) windows.push(source.rankings[index] || []);
  const risen = windows.map(risenOf).filter(Boolean), counts = new Map();
  for (const { ranking: [{ name }] } of risen) counts.set(name, (counts.get(name) || 0) + 1);
  if (risen.length === 0) return "";
  const [[name]] = [...counts].sort(([, one], [, other]) => other - one);
  return `, ${{ dst: "victim", src: "most from" }[risen[0].labels.key] || "most in"} ${source.names[name] || name}`;
}
// Returns what moved in an alarm: the flows that rose most, and entropies against the median of windows without one.
function moved({ source, first, last }) {
  const parts = [], rankings = source.rankingsOf(view, last), risen = risenOf(rankings);
  const named = (name) => source.names[name] || name;
  for (const { labels: { key, by, of }, ranking } of allRisen(rankings)) {
    const largest = ranking.slice(0, 3).map(({ name, number: it, more }) => `${named(name)} (${whole(it.value)} ${by || `distinct ${of}`}, ${more})`);
    parts.push(`above usual by ${key}: ${largest.join(", ")}`);
  }
  for (const [key, column] of source.columns) {
    if (!key.startsWith("entropy|")) continue;
    const before = [];
    for (let index = first; index <= last; index += 1) if (!source.flag("alarm", index)) before.push(source.value(column, index));
    before.sort((one, other) => one - other);
    const usual = before.length ? `, usually ${number(before[before.length >> 1], "bits")}` : "";
    parts.push(`entropy of ${key.slice(8)} ${number(source.value(column, last), "bits")}${usual}`);
  }
  const heavy = rankings.find((it) => it.name === "heavy_flows");
  if (heavy && !risen) parts.push(`heaviest ${heavy.labels.key}: ${heavy.ranking.slice(0, 3).map(({ name, more }) => `${name} (${more})`).join(", ")}`);
  return parts.join("; ");
}

// Sections.

for (const section of SECTIONS) {
  const { id, title, about, extra } = section;
  section.off = make("div");
  section.badges = make("ul", { class: "badges", hidden: "" });
  section.ledger = make("div", { class: "ledger" });
  const heading = make("h2", { id: `${id}-title` }, make("a", { href: `#${id}` }, title), make("small", {}, ` ${about}`));
  section.root = make("section", { id, class: "question", "aria-labelledby": `${id}-title`, tabindex: "-1" }, heading, section.badges);
  if (extra) {
    section.choice = make("input", { type: "checkbox", id: `extra-${id}` });
    section.choice.addEventListener("change", draw);
    section.switch = make("p", { class: "off switch" }, make("label", {}, section.choice, ` ${extra.text}`));
    section.root.append(section.switch);
  }
  section.root.append(section.ledger, make("div", { class: "panels", id: `panels-${id}` }), section.off);
  section.link = make("a", { href: `#${id}` }, title);
  // Charts off the screen are drawn when they are scrolled onto it.
  section.root.panel = section.root;
  section.root.draw = () => { if (view.spans.length) drawSection(section); };
  section.root.isStale = true;
  onScreen.observe(section.root);
  element("sections").append(section.root);
  element("contents").append(section.link);
}

function drawSection(section) {
  const { id, parts = {}, off, badges } = section;
  const isThere = (name) => view.all.some(({ source }) => source.measured.has(name));
  // A measurement that is off is one line. Whether it is on does not change during a run.
  const missing = Object.entries(parts).filter(([name]) => !isThere(name));
  const lines = missing.map(([, [what, option]]) => [`${what}: off; `, option, " switches it on."]);
  if (off.children.length !== lines.length) {
    off.replaceChildren(...lines.map(([before, option, after]) => make("p", { class: "off" }, before, make("code", {}, option), after)));
  }
  if (id === "ledger" && (section.root.isOnScreen || isPrinted)) drawLedger(section.ledger);
  drawBadges(section, badges);
  const isEmpty = id !== "ledger" && id !== "inventory" && lines.length === 0 && badges.hidden && ![...panels.values()].some((it) => it.section === section && !it.root.hidden);
  section.root.hidden = section.link.hidden = isEmpty;
  if (section.switch) section.switch.hidden = missing.length > 0;
}

// Draws flags as badges: one for all that are the same and always were, one for each other.
function drawBadges(section, list) {
  const badges = [];
  for (const panel of panels.values()) {
    if (panel.section !== section || panel.shape !== "state") continue;
    const bad = BAD[panel.figure];
    const same = { true: [], false: [] };
    for (const span of view.spans) {
      for (const label of panel.labels) {
        const column = span.source.columns.get(`${panel.name}|${label}`);
        if (!column || Number.isNaN(column.data[span.last])) continue;
        const is = column.data[span.last] === 1;
        const unusual = bad === 0 ? 0 : 1;
        let [count, last] = [0, -1];
        for (let index = span.first; index < span.behind; index += 1) if (column.data[index] === unusual) { count += 1; last = index; }
        if (count === 0) { same[is].push(label); continue; }
        const name = [view.spans.length > 1 ? span.source.name : "", panel.title, label].filter(Boolean).join(", ");
        const isNow = Number(is) === unusual;
        const which = `${unusual ? "yes" : "no"} in ${count} of ${span.behind - span.first} windows${isNow ? "" : `, the last at ${time(span.source.end(last))}`}`;
        badges.push([`${name}: ${isNow ? which : `${is ? "yes" : "no"}; ${which}`}`, bad === undefined ? "" : isNow ? "bad" : "was"]);
      }
    }
    for (const is of [true, false]) {
      const labels = [...new Set(same[is])].filter(Boolean);
      const name = labels.length === 1 || panel.figure === "alert_firing" ? `${panel.title}, ${labels.join(", ")}` : panel.title;
      if (same[is].length) badges.push([`${name}: ${is ? "yes" : "no"}`, Number(is) === bad ? "bad" : ""]);
    }
  }
  list.hidden = badges.length === 0;
  if (list.children.length !== badges.length) list.replaceChildren(...badges.map(() => make("li")));
  badges.forEach(([text, kind], index) => { write(list.children[index], text); list.children[index].className = kind; });
}

// Draws what became of the packets as a bar that adds up.
const LEDGER = [["packets", "counted, ", 0], ["rejected_packets", "counted without an IP flow, ", 7], ["unmatched_packets", "unmatched", 6], ["lost_packets", "lost, ", 5], ["unaccounted_packets", "unaccounted, ", 3]];
function drawLedger(root) {
  const blocks = view.spans.map(({ source, first, behind }) => {
    const devices = source.columns.get("received_packets|");
    const isOf = (index) => !devices || !Number.isNaN(devices.data[index]);
    const sum = (column) => { let sum = 0; for (let index = first; index < behind; index += 1) if (isOf(index)) sum += column.data[index] || 0; return sum; };
    const parts = [];
    for (const [name, text, colour] of LEDGER) {
      for (const [key, column] of source.columns) {
        if (!key.startsWith(`${name}|`)) continue;
        const packets = sum(column);
        if (packets > 0) parts.push({ text: text + key.slice(name.length + 1), packets: key === "unaccounted_packets|extra" ? -packets : packets, colour: COLOURS[(colour + parts.length * (name === "packets")) % COLOURS.length] });
      }
    }
    const added = parts.reduce((all, it) => all + it.packets, 0), received = devices ? sum(devices) : added;
    if (devices && received !== added) parts.push({ text: "difference of the ledger", packets: received - added, colour: COLOURS[5] });
    return { name: source.name, received, parts, devices };
  });
  const key = JSON.stringify(blocks.map(({ name, received, parts }) => [name, received, parts]));
  if (drawLedger.shown === key) return;
  drawLedger.shown = key;
  root.replaceChildren(...blocks.map(({ name, received, parts, devices }) => {
    const bar = make("div", { class: "parts", "aria-hidden": "true" });
    for (const { packets, colour } of parts.filter((it) => it.packets > 0)) {
      const part = make("span");
      Object.assign(part.style, { width: `${(packets / Math.max(1, received)) * 100}%`, background: colour });
      bar.append(part);
    }
    const rows = parts.map(({ text, packets, colour }) => {
      const box = make("span", { class: "key", "aria-hidden": "true" });
      box.style.background = colour;
      return row(make("td", {}, box, text), whole(packets), number(packets / Math.max(1, received), "ratio"));
    });
    rows.push(row(make("td", {}, make("b", {}, devices ? "= received by the devices" : "= all packets that were counted or lost")), make("td", {}, make("b", {}, whole(received))), "100 %"));
    const of = view.spans.length > 1 ? `${name}: ` : "";
    const caption = `${of}packets in the time shown${devices ? "" : "; no device here reports how many it received"}`;
    return make("div", { class: "panel" }, bar, table(["what became of them", "packets", "share"], rows, caption));
  }));
}

// Saves what is shown as CSV: a row for each window.
function save() {
  const quoted = (text) => `"${(/^[=+\-@]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  const keys = [...new Set(view.spans.flatMap(({ source }) => [...source.columns].filter(([, it]) => it.shape !== "distribution").map(([key]) => key)))];
  const widthOf = (key) => Math.max(...view.spans.map(({ source }) => (source.columns.get(key) || { width: 0 }).width));
  const fields = keys.flatMap((key) => Array.from({ length: widthOf(key) }, (_, part) => [key, part]));
  const head = ["source", "start", "end", "complete", ...fields.map(([key, part]) => key.replace(/\|$/, "").replaceAll(/[| ]/g, " ") + ["", " low", " high", " exact"][part])];
  const lines = [head.map(quoted).join()];
  for (const { source, first, behind } of view.spans) {
    for (let index = first; index < behind; index += 1) {
      const cells = fields.map(([key, part]) => { const it = source.columns.get(key); return it ? it.data[index * it.width + part] : NaN; });
      const [start, end] = [source.start(index), source.end(index)].map((it) => new Date(it * 1000).toISOString());
      lines.push([quoted(source.name), start, end, source.isComplete(index), ...cells.map((it) => (Number.isNaN(it) ? "" : it))].join());
    }
  }
  const link = make("a", { href: URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" })), download: `flowgauge-${new Date(view.to * 1000).toISOString().replaceAll(":", "")}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Controls. The address of the page has the choices, so that it can be sent to others.

function change() {
  chosen = element("source").value || chosen;
  const isAll = chosen === SIDE_BY_SIDE;
  wanted.set("source", isAll ? "*" : chosen ?? "");
  if (!capture) wanted.set("range", element("range").value);
  history.replaceState(null, "", `?${wanted}${location.hash}`);
  if (capture) list();
  draw();
}
function pause(now) {
  paused = now ? Math.max(...[...sources.values()].map((it) => it.end(it.count - 1))) : null;
  for (const it of sources.values()) it.frozen = now ? it.rankings : null;
  element("pause").setAttribute("aria-pressed", String(now));
  draw();
}
// Chooses a window of a capture for rankings and distributions.
function choose(index) {
  element("which").value = String(index);
  draw();
}
// Fills the list of windows of a capture.
function list() {
  const source = sources.get(chosen);
  element("which").parentNode.hidden = !source;
  const one = (_, index) => make("option", { value: String(index) }, `${time(source.start(index))} to ${time(source.end(index))}`);
  element("which").replaceChildren(make("option", { value: "all" }, "all windows"), ...(source ? Array.from({ length: source.count }, one) : []));
}

// The connection to a run.

function lose() {
  if (deadSince !== null) return;
  deadSince = answered;
  judge();
}
function answer() {
  answered = Date.now() / 1000;
  if (deadSince !== null && stream.readyState === EventSource.OPEN) [deadSince, isDirty] = [null, true];
}
function connect() {
  stream = new EventSource("events");
  const events = stream;
  events.onmessage = (message) => { answer(); take(JSON.parse(message.data)); };
  events.addEventListener("run", (message) => {
    if (run !== null && run !== message.data) forget();
    run = message.data;
  });
  events.addEventListener("caught-up", () => { [isBehind, isDirty] = [false, true]; });
  events.onerror = () => {
    lose();
    // Browsers do not reconnect after an answer that is not a stream.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}
// The run has restarted: discard the windows of the previous one.
function forget() {
  for (const it of panels.values()) { it.forget(); onScreen.unobserve(it.root); it.root.remove(); }
  for (const { root } of groups.values()) root.remove();
  for (const it of [sources, panels, groups]) it.clear();
  [chosen, isBehind, problemsSince] = [null, true, null];
  view = { spans: [], all: [], from: 0, to: 1 };
  if (paused !== null) pause(false);
}
async function poll() {
  // Answers that arrived while the page was busy count first.
  const judgeSilence = () => { if (Date.now() / 1000 - answered > ANSWER_MS / 1000) lose(); };
  const silence = setTimeout(() => setTimeout(judgeSilence, 50), ANSWER_MS);
  try {
    const about = await (await fetch("about", { signal: AbortSignal.timeout(10 * POLL_MS), cache: "no-store" })).json();
    answer();
    host = about.host;
    write(element("title"), host);
    if (about.problems.length === 0) problemsSince = null;
    else if (problemsSince === null) problemsSince = answered;
    problems = about.problems;
    judge();
  } catch {
    if (Date.now() / 1000 - answered > POLL_MS / 1000) lose();
  }
  clearTimeout(silence);
  setTimeout(poll, POLL_MS);
}
// Redraws once for many windows, since past ones arrive by the hundred, and uses only a part of the CPU time.
function redraw() {
  const began = performance.now();
  if (isDirty && paused === null && !isBehind && !document.hidden) draw();
  setTimeout(redraw, Math.max(200, 4 * (performance.now() - began)));
}
function watch() {
  if (wanted.has("range")) element("range").value = wanted.get("range");
  if (element("range").selectedIndex < 0) element("range").value = "900";
  element("zone").textContent = `Times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;
  connect();
  poll();
  redraw();
}

// A capture: all windows are in the page.
function report({ about, totals, windows }) {
  write(element("title"), about.title);
  document.title = `${about.title}: flowgauge`;
  element("zone").textContent = `Times are UTC. Made by flowgauge ${about.version}.`;
  for (const id of ["links", "pause"]) element(id).hidden = true;
  element("range").parentNode.hidden = true;
  for (const { name, value } of about.facts) element("facts").append(make("dt", {}, name), make("dd", {}, value));
  element("facts").hidden = false;
  problems = about.problems;
  drawInventory(about.contents);
  for (const event of windows) take(event);
  for (const event of totals) {
    const source = sourceOf(event);
    source.total = event.figures.filter((it) => it.ranking);
    source.whole = new Source(source.name, source.isPart);
    source.whole.push(event, [...event.figures, ...derived(event)]);
  }
  list();
  draw();
}

element("choices").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["source", "range"]) element(id).addEventListener("change", change);
element("which").addEventListener("change", draw);
element("pause").addEventListener("click", () => pause(paused === null));
element("events").addEventListener("toggle", () => draw());
element("save").addEventListener("click", save);
darkness.addEventListener("change", () => { readInk(); draw(); });
function print(is) {
  isPrinted = is;
  document.documentElement.classList.toggle("paper", is);
  readInk();
  draw();
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
readInk();
if (capture) report(capture);
else watch();
