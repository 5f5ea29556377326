"use strict";
// Draws what it is given: axes with units, lines, bars. No figure is made here.

/** An element with attributes and children; texts become text nodes, so nothing is read as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return dressed(made, attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dressed(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Nanoseconds as people write them, for axes. */
function spanText(ns) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  const [scale, unit] = units.find(([scale]) => ns >= scale * 0.9995) ?? [1, "ns"];
  return `${shortNumber(ns / scale)} ${unit}`;
}

/** A number with a prefix: 1.2 M. */
function countText(count) {
  const units = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]];
  const [scale, unit] = units.find(([scale]) => Math.abs(count) >= scale * 0.9995) ?? [1, ""];
  return `${shortNumber(count / scale)}${unit}`;
}

function shortNumber(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return String(Number(value.toFixed(Math.min(digits, 6))));
}

const HEIGHT = 300;
const MARGIN = { left: 62, right: 14, top: 12, bottom: 40 };

/** A frame to draw in: the picture is as wide as its place, so that its letters keep their size. */
function frame(place, label, height = HEIGHT) {
  const width = Math.max(260, Math.floor(place.clientWidth || 640));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  place.replaceChildren(svg);
  return {
    svg,
    left: MARGIN.left,
    right: width - MARGIN.right,
    top: MARGIN.top,
    bottom: height - MARGIN.bottom,
  };
}

function logScale(low, high, from, to) {
  const factor = (to - from) / (Math.log(high) - Math.log(low));
  return (value) => from + (Math.log(Math.max(value, low)) - Math.log(low)) * factor;
}

function linearScale(high, from, to) {
  return (value) => from + (value / high) * (to - from);
}

/** Powers of ten between two bounds, with 2 and 5 where there are few, and fewer where they crowd. */
function logTicks(low, high, most) {
  const powers = (steps) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const step of steps) found.push(step * 10 ** power);
    }
    return found.filter((value) => value >= low && value <= high);
  };
  const tens = powers([1]);
  if (tens.length >= 3) return tens.filter((_, at) => at % Math.ceil(tens.length / most) === 0);
  const more = powers([1, 2, 5]);
  return more.filter((_, at) => at % Math.ceil(more.length / most) === 0);
}

/** Round steps from zero to at least a value. */
function linearTicks(high, count) {
  const rough = high / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough);
  const ticks = [];
  for (let at = 0; at <= Math.ceil(high / step); at += 1) ticks.push(at * step);
  return ticks;
}

function axes(area, x, y, names) {
  const { svg, left, right, top, bottom } = area;
  for (const { at, text } of y) {
    svg.append(
      drawn("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
      drawn("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text),
    );
  }
  for (const { at, text, anchor } of x) {
    svg.append(
      drawn("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }),
      drawn("text", { x: at, y: bottom + 16, "text-anchor": anchor ?? "middle" }, text),
    );
  }
  svg.append(
    drawn("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    drawn("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }),
    drawn("text", { x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, names.x),
    drawn("text", { x: left + 6, y: top + 10 }, names.y),
  );
}

/**
 * The ladders of several policies, both axes logarithmic because waits double. `chosen` are indices
 * into `policies`, which keep their colours.
 */
function drawLadders(place, policies, chosen, label) {
  const shown = chosen.map((index) => ({ index, ladder: policies[index].ladder }));
  const steps = shown.flatMap(({ ladder }) => ladder.steps).filter((step) => step.wait_ns > 0);
  if (steps.length === 0) {
    place.replaceChildren(element("p", { class: "hint" }, "The timer is off: there is nothing to draw."));
    return;
  }
  const area = frame(place, label);
  const waits = steps.map((step) => step.wait_ns);
  const low = Math.min(...waits) / 1.6;
  const high = Math.max(...waits) * 1.8;
  // Equal waits are one step; the first of them ends the ladder's first stair.
  const first = Math.min(...steps.map((step) => step.from_ns + step.wait_ns)) / 1.8;
  const last = Math.max(...steps.map((step) => step.at_ns)) * 1.3;
  const x = logScale(first, last, area.left, area.right);
  const y = logScale(low, high, area.bottom, area.top);
  const room = Math.max(3, Math.floor((area.right - area.left) / 70));
  axes(
    area,
    logTicks(first, last, room).map((value) => ({ at: x(value), text: spanText(value) })),
    logTicks(low, high, 7).map((value) => ({ at: y(value), text: spanText(value) })),
    { x: "time since the first send", y: "wait" },
  );
  for (const { ladder } of shown) {
    for (const [range, band] of ladder.bands.entries()) {
      if (band.high_ns < low || band.low_ns > high) continue;
      const top = y(Math.min(band.high_ns * 1.04, high));
      const bottom = y(Math.max(band.low_ns / 1.04, low));
      const size = { x: area.left, y: top, width: area.right - area.left, height: bottom - top };
      area.svg.append(
        drawn("rect", { class: "band", ...size }),
        drawn("text", { x: area.right - 4, y: (top + bottom) / 2 + 4, "text-anchor": "end" }, `range ${range}`),
      );
    }
  }
  for (const { index, ladder } of shown) area.svg.append(...stairs(ladder, index, x, y, area.right));
}

function stairs(ladder, index, x, y, right) {
  const parts = [];
  const dots = [];
  let end = null;
  for (const step of ladder.steps.filter((it) => it.wait_ns > 0)) {
    parts.push(`${parts.length ? "L" : "M"}${x(step.from_ns).toFixed(1)} ${y(step.wait_ns).toFixed(1)}`);
    parts.push(`L${x(step.at_ns).toFixed(1)} ${y(step.wait_ns).toFixed(1)}`);
    end = step;
    // Where every retransmission can be seen, it is.
    let before = -Infinity;
    for (let n = 1; n <= step.count; n += 1) {
      const at = x(step.from_ns + n * step.wait_ns);
      if (at - before < 7) break;
      before = at;
      if (step.event === "retransmit") dots.push({ at, wait: step.wait_ns });
    }
  }
  if (end === null) return [];
  if (ladder.is_cut) parts.push(`L${right} ${y(end.wait_ns).toFixed(1)}`);
  const drawnParts = [drawn("path", { class: `s${index}`, d: parts.join("") })];
  for (const { at, wait } of dots) {
    drawnParts.push(drawn("circle", { class: `s${index}`, cx: at.toFixed(1), cy: y(wait).toFixed(1), r: 3 }));
  }
  if (end.event === "error") {
    const [cx, cy] = [x(end.at_ns), y(end.wait_ns)];
    const cross = `M${cx - 5} ${cy - 5}l10 10m0 -10l-10 10`;
    drawnParts.push(drawn("path", { class: `s${index} cross`, d: cross }));
  }
  return drawnParts;
}

/** Bins and how much is in them; those before the first and after the last that has something are left out. */
function drawBars(place, bins, label) {
  const used = bins.map((bin, at) => (bin.count > 0 ? at : -1)).filter((at) => at >= 0);
  if (used.length === 0) {
    place.replaceChildren(element("p", { class: "hint" }, "No adaptive-retransmission timeouts yet."));
    return;
  }
  const shown = bins.slice(used[0], used[used.length - 1] + 1);
  const area = frame(place, label, 220);
  const most = Math.max(...shown.map((bin) => bin.count));
  const ticks = linearTicks(most, 4).filter(Number.isInteger);
  const y = linearScale(ticks[ticks.length - 1], area.bottom, area.top);
  const width = (area.right - area.left) / shown.length;
  const every = Math.ceil(shown.length / Math.max(2, Math.floor((area.right - area.left) / 80)));
  const edges = shown.map((bin, at) => ({ at: area.left + at * width, text: spanText(bin.low_ns) }));
  axes(
    area,
    edges.filter((_, at) => at % every === 0),
    ticks.map((value) => ({ at: y(value), text: countText(value) })),
    { x: "waits from", y: "timeouts" },
  );
  shown.forEach((bin, at) => {
    const end = bin.high_ns === null ? "and more" : `to ${spanText(bin.high_ns)}`;
    const title = drawn("title", {}, `${spanText(bin.low_ns)} ${end}: ${bin.count}`);
    const top = y(bin.count);
    const size = { x: area.left + at * width + 1, y: top, width: Math.max(1, width - 2), height: area.bottom - top };
    area.svg.append(drawn("rect", { class: "bar", ...size }, title));
  });
}

/** Lines over the last seconds. `series` are lists of [seconds ago, value]. */
function drawLines(place, series, seconds, unit, label) {
  const area = frame(place, label, 180);
  const values = series.flatMap((points) => points.map(([, value]) => value));
  const most = Math.max(...values, 0);
  const ticks = linearTicks(most > 0 ? most : 1, 3);
  const y = linearScale(ticks[ticks.length - 1], area.bottom, area.top);
  const x = (ago) => area.right - (ago / seconds) * (area.right - area.left);
  const times = [seconds, seconds / 2, 0];
  axes(
    area,
    times.map((ago) => ({ at: x(ago), text: ago ? `-${ago / 60} min` : "now", anchor: ago ? "middle" : "end" })),
    ticks.map((value) => ({ at: y(value), text: countText(value) })),
    { x: "time", y: unit },
  );
  series.forEach((points, index) => {
    const inside = points.filter(([ago]) => ago <= seconds);
    const path = inside.map(([ago, value], at) => `${at ? "L" : "M"}${x(ago).toFixed(1)} ${y(value).toFixed(1)}`);
    if (path.length > 1) area.svg.append(drawn("path", { class: `s${index}`, d: path.join("") }));
  });
}

/** Boxes to tick for the lines of a picture, with what the lines look like. */
function seriesBoxes(place, names, changed) {
  const boxes = names.map((name, index) => {
    const box = element("input", { type: "checkbox", checked: true, value: index });
    box.addEventListener("change", changed);
    const sample = drawn("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" },
      drawn("line", { class: `s${index}`, x1: 0, x2: 28, y1: 5, y2: 5 }));
    return { box, label: element("label", {}, box, sample, name) };
  });
  place.replaceChildren(...boxes.map(({ label }) => label));
  return () => boxes.filter(({ box }) => box.checked).map(({ box }) => Number(box.value));
}
