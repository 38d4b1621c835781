// A chart of lines with bands over steps. Hovering or arrow keys read values; dragging, or + and -, zooms; it can be saved as SVG or CSV.

import { h, number, s } from "./dom.js";

const WIDE = 460;
const HIGH = 230;
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const DRAG = 8;
export const DASHES = ["", "6 4", "2 3", "8 3 2 3"];

// series: [{name, colour, dash, width, points: [[step, value, low, high], …]}], width: number of steps that a point averages; view: {from, to, smooth, zoom(from, to), link(step): {address, text}}.
export function chart({ title, unit, series }, view) {
  const drawing = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", tabindex: "0", role: "img" });
  const tip = h("div", { class: "tip", hidden: true, "aria-live": "polite" });
  const state = { at: null, pressed: null };
  const buttons = h("span", { class: "tools" },
    h("button", { type: "button", title: "save this chart as SVG", onclick: () => saveSvg(drawing, title) }, "SVG"),
    h("button", { type: "button", title: "save these numbers as CSV", onclick: () => saveCsv(series, title) }, "CSV"));
  const figure = h("figure", { class: "charted" }, h("figcaption", {}, h("b", {}, title), unit ? ` ${unit}` : "", buttons), drawing, tip);
  let scale = null;

  function draw() {
    const shown = series.map((one) => ({ ...one, points: smoothed(one.points, Math.ceil(view.smooth / (one.width ?? 1))).filter(([x]) => x >= view.from && x <= view.to) }))
      .filter((one) => one.points.length);
    scale = scaled(shown, view);
    drawing.setAttribute("aria-label", `${title}: ${shown.map(said).join("; ") || "no value in this range"}. Arrow keys read values.`);
    drawing.replaceChildren(...axes(scale), ...shown.flatMap((one) => lines(one, scale)), s("g", { class: "cursor" }));
    scale.shown = shown;
    read(state.at);
  }

  function read(step, pinned = false) {
    const cursor = drawing.querySelector(".cursor");
    const steps = [...new Set(scale.shown.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
    if (step === null || !steps.length) {
      cursor.replaceChildren();
      tip.hidden = true;
      state.at = null;
      return;
    }
    const near = steps.reduce((best, x) => (Math.abs(x - step) < Math.abs(best - step) ? x : best));
    state.at = near;
    const values = scale.shown.map((one) => [one, one.points.find(([x]) => x === near)]).filter(([, point]) => point)
      .sort(([, a], [, b]) => b[1] - a[1]);
    cursor.replaceChildren(s("line", { x1: scale.x(near), x2: scale.x(near), y1: TOP, y2: HIGH - BOTTOM }),
      ...values.map(([one, [x, y]]) => s("circle", { cx: scale.x(x), cy: scale.y(y), r: 4, class: `c${one.colour}` })));
    const link = pinned ? view.link(near) : null;
    tip.replaceChildren(h("b", {}, `step ${number(near)}`), ...values.map(([one, [, y, low, high]]) =>
      h("span", {}, h("i", { class: `swatch c${one.colour}` }), `${one.name} ${number(y)}${low === undefined ? "" : ` [${number(low)}, ${number(high)}]`}`)),
    link ? h("a", { href: link.address }, link.text) : "");
    tip.hidden = false;
    const left = scale.x(near) / WIDE;
    tip.style.left = left < 0.5 ? `${100 * left + 3}%` : "auto";
    tip.style.right = left < 0.5 ? "auto" : `${103 - 100 * left}%`;
  }

  const stepAt = (event) => {
    const box = drawing.getBoundingClientRect();
    return scale.back(((event.clientX - box.left) / box.width) * WIDE);
  };
  drawing.addEventListener("pointermove", (event) => { if (!state.pinned) read(stepAt(event)); });
  drawing.addEventListener("pointerleave", () => { if (!state.pinned) read(null); });
  drawing.addEventListener("pointerdown", (event) => { state.pressed = event.clientX; state.from = stepAt(event); });
  drawing.addEventListener("pointerup", (event) => {
    if (state.pressed === null) return;
    const dragged = Math.abs(event.clientX - state.pressed) > DRAG;
    state.pressed = null;
    if (dragged) return view.zoom(...[state.from, stepAt(event)].sort((a, b) => a - b));
    state.pinned = !state.pinned;
    read(stepAt(event), state.pinned);
  });
  drawing.addEventListener("keydown", (event) => {
    const middle = state.at ?? (view.from + view.to) / 2;
    const reach = (view.to - view.from) / 4;
    if (event.key === "+") view.zoom(middle - reach, middle + reach);
    else if (event.key === "-") view.zoom(view.from - 2 * reach, view.to + 2 * reach);
    else if (event.key === "Escape") { state.pinned = false; read(null); }
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const way = event.key === "ArrowRight" ? 1 : -1;
      const steps = [...new Set(scale.shown.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => way * (a - b));
      state.pinned = true;
      read(steps.find((x) => way * (x - (state.at ?? -way * Infinity)) > 0) ?? state.at, true);
    } else return;
    event.preventDefault();
  });
  draw();
  figure.draw = draw;
  return figure;
}

// The running mean over `width` steps.
function smoothed(points, width) {
  if (width <= 1) return points;
  return points.map(([x, ...rest], at) => {
    const part = points.slice(Math.max(0, at - width + 1), at + 1);
    return [x, ...rest.map((_, column) => part.reduce((sum, point) => sum + point[column + 1], 0) / part.length)];
  });
}

function scaled(shown, view) {
  const values = shown.flatMap((one) => one.points.flatMap(([, y, low = y, high = y]) => [low, high]));
  let [low, high] = [Math.min(...values, Infinity), Math.max(...values, -Infinity)];
  if (low > high) [low, high] = [0, 1];
  if (low === high) [low, high] = [low > 0 ? 0 : low - 1, high < 0 ? 0 : high + 1];
  if (values.every((one) => one === 0)) low = 0;
  const across = view.to - view.from || 1;
  const pad = (high - low) / 20;
  [low, high] = [low >= 0 && low - pad < 0 ? 0 : low - pad, high + pad];
  return { low, high, from: view.from, to: view.from + across,
    x: (step) => LEFT + ((step - view.from) / across) * (WIDE - LEFT - RIGHT),
    y: (value) => HIGH - BOTTOM - ((value - low) / (high - low)) * (HIGH - TOP - BOTTOM),
    back: (x) => view.from + ((x - LEFT) / (WIDE - LEFT - RIGHT)) * across };
}

// About four round numbers between two others.
function ticks(low, high) {
  const raw = (high - low) / 4;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const gap = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((wide) => wide >= raw);
  const found = [];
  for (let at = Math.ceil(low / gap); at * gap <= high; at += 1) found.push(at * gap);
  return found;
}

function axes(scale) {
  const across = ticks(scale.low, scale.high).flatMap((value) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: scale.y(value), y2: scale.y(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: scale.y(value) + 4, "text-anchor": "end" }, number(Number(value.toPrecision(6))))]);
  const along = ticks(scale.from, scale.to).filter(Number.isInteger).map((step) =>
    s("text", { class: "tick", x: scale.x(step), y: HIGH - 7, "text-anchor": "middle" }, number(step)));
  return [...across, ...along];
}

function lines(one, scale) {
  const path = one.points.map(([x, y], at) => `${at ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`).join("");
  const drawn = [s("path", { class: `line c${one.colour}`, d: path, "stroke-dasharray": DASHES[one.dash % DASHES.length] })];
  if (one.points.length === 1) drawn.push(s("circle", { class: `c${one.colour}`, cx: scale.x(one.points[0][0]), cy: scale.y(one.points[0][1]), r: 3 }));
  if (one.points.some((point) => point.length > 2)) {
    const there = ([x, y, , high = y]) => `${scale.x(x).toFixed(1)} ${scale.y(high).toFixed(1)}`;
    const back = ([x, y, low = y]) => `${scale.x(x).toFixed(1)} ${scale.y(low).toFixed(1)}`;
    drawn.unshift(s("path", { class: `band c${one.colour}`, d: `M${one.points.map(there).join("L")}L${one.points.toReversed().map(back).join("L")}Z` }));
  }
  return drawn;
}

function said(one) {
  const [first, last] = [one.points[0], one.points.at(-1)];
  return `${one.name} from ${number(first[1])} at step ${number(first[0])} to ${number(last[1])} at step ${number(last[0])}`;
}

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];

export function saveSvg(drawing, title) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [drawing, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  from.forEach((one, at) => STYLES.forEach((name) => to[at].setAttribute(name, getComputedStyle(one).getPropertyValue(name))));
  const { width, height } = drawing.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  save(new XMLSerializer().serializeToString(copy), "image/svg+xml", `${title}.svg`);
}

function saveCsv(series, title) {
  const quoted = (text) => `"${String(text).replaceAll('"', '""').replace(/^[=+\-@]/, "'$&")}"`;
  const rows = series.flatMap((one) => one.points.map(([x, y, low = "", high = ""]) => `${quoted(one.name)},${x},${y},${low},${high}`));
  save(["line,step,value,low,high", ...rows, ""].join("\n"), "text/csv", `${title}.csv`);
}

function save(text, type, name) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name.replaceAll(/[^\w.-]+/g, "-") }).click();
  URL.revokeObjectURL(address);
}
