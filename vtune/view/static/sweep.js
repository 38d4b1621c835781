// The results of a sweep: a plot of differences with their intervals, and its tables.

import { saveSvg } from "./chart.js";
import { h, s } from "./dom.js";
import { drawn } from "./run.js";

const WIDE = 460;
const ROW = 44;
const SIDE = 12;
const BELOW = 22;

// sweeps: the result of `vtune.runs.view.sweeps` for each.
export function sweepSections(sweeps) {
  return sweeps.map((one) => h("section", { "aria-label": `Sweep ${one.name}` }, h("h1", {}, one.name),
    h("p", { class: "facts" }, h("span", {}, "sweep"), h("span", {}, one.path)),
    one.problem ? h("p", { class: "text error" }, one.problem) : null,
    one.interval ? h("p", { class: "quiet" }, `In brackets: ${one.interval}.`) : null,
    one.unfinished.length ? h("p", {}, `not finished: ${one.unfinished.join(", ")}`) : null,
    one.effects.length ? h("h2", {}, "differences, seed by seed") : null,
    h("div", { class: "charts" }, ...one.effects.map((effect) => forest(effect, one.effects))),
    ...one.tables.map((table) => drawn(table, "", !table.title.startsWith("held out") || table.part !== ""))));
}

// For each difference a dot with its interval, behind it the interval over questions, a tick for each seed, and a line at 0; charts in percentage points share a scale.
function forest({ title, unit, rows }, all) {
  const high = rows.length * ROW + BELOW;
  const alike = unit ? all.filter((one) => one.unit === unit) : [{ rows }];
  const ends = alike.flatMap((one) => one.rows).flatMap((row) => [0, row.value, row.low ?? row.value, row.high ?? row.value, ...row.values, ...Object.values(row.by_questions ?? {})]);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const across = most - least || 1;
  const x = (value) => SIDE + ((value - least) / across) * (WIDE - 2 * SIDE);
  const drawing = s("svg", { viewBox: `0 0 ${WIDE} ${high}`, class: "chart", role: "img",
    "aria-label": `${title}: ${rows.map((row) => `${row.name} ${said(row)}`).join("; ")}` },
  s("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: high - BELOW }),
  ...rows.flatMap((row, at) => difference(row, at * ROW, x)),
  ...[...new Set([least, 0, most])].filter((value) => value === 0 || Math.abs(x(value) - x(0)) > ROW).map((value) => s("text", { class: "tick", x: x(value), y: high - 6, "text-anchor": value === least ? "start" : value === most ? "end" : "middle" }, short(value))));
  const button = h("button", { type: "button", title: "save this chart as SVG", onclick: () => saveSvg(drawing, title) }, "SVG");
  return h("figure", { class: "charted" }, h("figcaption", {}, h("b", {}, title), unit ? ` ${unit}` : "", h("span", { class: "tools" }, button)), drawing);
}

function difference(row, top, x) {
  const middle = top + 30;
  const shape = [s("text", { class: "tick", x: SIDE, y: top + 14 }, row.name),
    s("text", { class: "tick", x: WIDE - SIDE, y: top + 14, "text-anchor": "end" }, said(row)),
    ...row.values.map((value) => s("line", { class: "seed", x1: x(value), x2: x(value), y1: middle - 6, y2: middle + 6 }))];
  if (row.by_questions) shape.push(s("line", { class: "questions", x1: x(row.by_questions.low), x2: x(row.by_questions.high), y1: middle, y2: middle }));
  if (row.low !== null) shape.push(s("line", { class: "line c0", x1: x(row.low), x2: x(row.high), y1: middle, y2: middle }));
  return [...shape, s("circle", { class: "c0", cx: x(row.value), cy: middle, r: 4 })];
}

function said(row) {
  return row.low === null ? short(row.value) : `${short(row.value)} [${short(row.low)}, ${short(row.high)}]`;
}

function short(value) {
  return value.toFixed(1);
}
