"use strict";
// Numbers, times and elements. All text of the page is formatted here.

const element = (id) => document.getElementById(id);
// Windows of a report; null on the live page.
const capture = element("data") && JSON.parse(element("data").textContent);

const POWERS = ["", "k", "M", "G", "T", "P"];
const SYMBOLS = { bits: "bit", bytes: "B" };

// Returns the factor and the symbol in which a number of this size is written.
function scale(size, unit) {
  const [base, per] = [unit.replace("/s", ""), unit.endsWith("/s") ? "/s" : ""];
  if (base === "ratio") return [100, "%"];
  if (base === "seconds") return size >= 1 || size === 0 ? [1, "s"] : size >= 0.9995e-3 ? [1e3, "ms"] : size >= 0.9995e-6 ? [1e6, "µs"] : [1e9, "ns"];
  let power = 0;
  while (size >= 999.5 && power < POWERS.length - 1) { size /= 1000; power += 1; }
  return [1000 ** -power, POWERS[power] + (SYMBOLS[base] || "") + per];
}

// Writes a number with this many places, and one that would take more than six of them with a power of ten.
const written = (value, places) => (places <= 6 ? value.toFixed(places) : value === 0 ? "0" : Number(value.toPrecision(2)).toExponential());

// Formats a value and its interval in one unit, with the digits that the interval leaves meaning: three at most.
function quantity(value, unit, low = value, high = value) {
  if (!Number.isFinite(value)) return { value: Number.isNaN(value) ? "none" : "∞", interval: "" };
  const [factor, symbol] = scale(Math.abs(value) || (Number.isFinite(high) ? Math.abs(high) : 0), unit);
  const size = Math.abs(value * factor), width = (high - low) * factor;
  const isWhole = factor === 1 && [value, low, high].every((it) => Number.isInteger(it) || it === Infinity);
  let places = isWhole || size === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size * 1.0005)));
  // Two digits of the value remain, however wide the interval is.
  const digits = (it) => Math.max(0, 1 - Math.floor(Math.log10(it)));
  if (width > 0 && width < Infinity && !isWhole) places = size === 0 ? Math.min(2, digits(width)) : Math.min(places, Math.max(digits(width), digits(size)));
  const text = (it) => (Number.isFinite(it) ? written(it * factor, places) : "∞");
  const behind = symbol.startsWith("/") || symbol === "" ? symbol : `\u00a0${symbol}`;
  const [from, to] = [text(low), text(high)];
  return { value: text(value) + behind, interval: from === to ? "" : `${from} … ${to}${behind}` };
}
const number = (value, unit) => quantity(value, unit).value;
const whole = (value) => Math.round(value).toLocaleString("en");

// Returns the round numbers between two positive ones: powers of ten, and between close ones also their doubles and fives.
function roundNumbers(least, most) {
  if (!(least > 0 && most < Infinity)) return [];
  const steps = most / least > 1000 ? [1] : [1, 2, 5], all = [];
  for (let power = Math.floor(Math.log10(least)); 10 ** power <= most; power += 1) {
    for (const step of steps) {
      const it = Number(`${step}e${power}`);
      if (it >= least * 0.9999 && it <= most * 1.0001) all.push(it);
    }
  }
  return all;
}
// Formats a round number of an axis.
function tick(value, unit) {
  const text = unit === "seconds" && value >= 0.1 ? `${value}\u00a0s` : number(value, unit);
  return text.replace(/\.0+(?=\D|$)/, "");
}
// Returns about five multiples of 1, 2 or 5 times a power of ten, from zero to the end of an axis.
function roundSteps(most) {
  const power = Math.floor(Math.log10(most / 5));
  const step = [1, 2, 5, 10].map((it) => Number(`${it}e${power}`)).find((it) => it * 5 >= most * 0.9999);
  const all = [];
  for (let at = 0; at * step <= most; at += 1) all.push(Number((at * step).toPrecision(12)));
  return all;
}

// Formats the numbers of an axis alike.
function axisNumbers(numbers, unit) {
  const most = Math.max(...numbers.map(Math.abs));
  const [factor, symbol] = unit === "seconds" && most >= 0.1 ? [1, "s"] : scale(most, unit);
  const step = numbers.length > 1 ? (numbers[1] - numbers[0]) * factor : 1;
  // Whole, but for the rounding of binary numbers.
  const isWhole = (it) => Math.abs(it - Math.round(it)) <= 1e-6 * Math.abs(it);
  let places = 0;
  while (places < 20 && !isWhole(step * 10 ** places)) places += 1;
  const behind = symbol.startsWith("/") || symbol === "" ? symbol : `\u00a0${symbol}`;
  return numbers.map((it) => (it === 0 ? "0" : written(it * factor, places) + behind));
}

// Times of captures are shown in UTC as recorded; those of a run in the reader's time zone.
const date = (seconds) => (capture ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000));
// Creating a format takes longer than using it.
const formats = new Map();
// Formats a time, with the parts that the range and the step between times need.
function time(seconds, step = 0, isLong = times.isLong) {
  const isFine = times.isFine && step < 1;
  const key = `${isFine} ${isLong} ${step >= 60}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.DateTimeFormat(undefined, {
      hour: "2-digit", minute: "2-digit", second: step >= 60 ? undefined : "2-digit", hourCycle: "h23",
      ...(isFine && { fractionalSecondDigits: 3 }), ...(isLong && { month: "short", day: "numeric" }), ...(capture && { timeZone: "UTC" }),
    }));
  }
  return formats.get(key).format(seconds * 1000);
}
const times = { isFine: false, isLong: false };
const days = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", ...(capture && { timeZone: "UTC" }) });
const day = (seconds) => days.format(seconds * 1000);
// Formats a time with its date, and a range of times with the date of both.
const moment = (seconds, step) => `${day(seconds)}, ${time(seconds, step, false)}`;
const between = (from, to) => `${moment(from)} to ${day(from) === day(to) ? time(to, 0, false) : moment(to)}`;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function vector(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function table(head, rows, caption) {
  const cells = head.map((it) => make("th", { scope: "col" }, it));
  const above = caption ? [make("caption", {}, caption)] : [];
  return make("table", {}, ...above, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows));
}
const row = (...cells) => make("tr", {}, ...cells.map((it) => (it instanceof Node ? it : make("td", {}, it))));
// Writes only what changes, so that screen readers repeat nothing.
function write(to, text) {
  if (to.written !== text) to.written = to.textContent = text;
}
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
