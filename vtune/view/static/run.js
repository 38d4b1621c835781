// The page of a run, or of several overlaid: headline, what changed, curves, tables, recipe.

import { DASHES, chart } from "./chart.js";
import { h, number, s, table } from "./dom.js";
import { address } from "./list.js";
import { holds, offline as held } from "./source.js";

const COLOURS = 6;
const ALL = "all";
const BAD = ["worse", "fell back"];
const WAYS = { reward: "right:no", accuracy: "right:no", evidence_rate: "faithful:no", red_flags: "-flag:none", unscored: "right:none",
  truncated: "stop:length", no_tool: "calls:0" };
const SMOOTH = ["1", "5", "20"];

// places: the places to show; runs: their overviews; asked: {sources, from, to, smooth} from the address; change(asked) updates it.
export function runPage(places, runs, asked, change, film) {
  const names = places.map((one) => one.name);
  return [h("h1", {}, names.join(" and ")), ...places.map((place, at) => facts(place, runs[at])),
    ...differing(names, runs, "recipe"), headlines(places, runs), ...changed(places, runs), ...samples(names, runs), ...film, ...curves(places, runs, asked, change),
    ...runs.flatMap((run, at) => run.tables.map((one) => drawn(one, runs.length > 1 ? `${names[at]}: ` : ""))),
    ...differing(names, runs, "environment"), ...recipes(names, runs, "recipe"), ...recipes(names, runs, "environment"),
    ...runs.flatMap((run) => run.funnels.map((one) => folded(`curation behind the data: ${one.title}`, funnel(one))))];
}

function facts(place, run) {
  const done = run.steps_done ? `step ${run.steps_done}${run.total_steps ? ` of ${run.total_steps}` : ""}` : null;
  const queries = place.rows ? run.queries.map(({ name, query, found }) => h("a", { href: address(place.number, query) }, `${name}: ${found}`)) : [];
  return h("p", { class: "facts" }, h("b", {}, place.name), h("span", {}, place.kind), done ? h("span", {}, done) : null, run.unfinished ? h("span", {}, run.unfinished) : null, h("span", {}, run.path),
    place.rows ? h("a", { href: address(place.number, "") }, `${place.rows}${place.rows < place.there ? ` of ${place.there}` : ""} trajectories`) : null, ...queries,
    run.problem ? h("span", { class: "text error" }, run.problem) : null);
}

function estimate(one, share) {
  if (!one) return "–";
  const short = (value) => (share ? (100 * value).toFixed(1) : number(Number(value.toPrecision(3))));
  const interval = one.low === null || one.low === undefined ? "" : ` [${short(one.low)}, ${short(one.high)}]`;
  return `${short(one.value)}${share ? " %" : ""}${interval}`;
}

function headlines(places, runs) {
  const shown = runs.map((run, at) => [places[at], run.headline]).filter(([, headline]) => headline.rows.length);
  if (!shown.length) return null;
  if (shown.length > 1) return severalHeadlines(shown);
  const trained = shown.some(([, headline]) => headline.rows.some((row) => row.first));
  const rows = shown.flatMap(([, headline]) => headline.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name),
    ...(trained ? [h("td", { class: "number" }, row.first ? estimate(row.first, row.share) : "")] : []), h("td", { class: "number strong" }, estimate(row.last, row.share)))));
  return h("section", {}, h("h2", {}, "headline"), h("p", { class: "quiet" }, shown[0][1].of), table(trained ? ["", "first", "last"] : ["", "value"], rows));
}

// One column per run or evaluation: the first value, then the last one with its interval.
function severalHeadlines(shown) {
  const names = [...new Set(shown.flatMap(([, headline]) => headline.rows.map((row) => row.name)))];
  const cell = (row) => !row ? "–" : row.first ? `${estimate({ value: row.first.value }, row.share)} → ${estimate(row.last, row.share)}` : estimate(row.last, row.share);
  const rows = names.map((name) => h("tr", {}, h("th", { scope: "row" }, name), ...shown.map(([, headline]) =>
    h("td", { class: "number" }, cell(headline.rows.find((row) => row.name === name))))));
  const same = new Set(shown.map(([, headline]) => headline.of)).size === 1;
  const of = same ? shown[0][1].of : shown.map(([place, headline]) => `${place.name}: ${headline.of}`).join("; ");
  return h("section", {}, h("h2", {}, "headline"), h("p", { class: "quiet" }, of), table(["", ...shown.map(([place]) => place.name)], rows));
}

// The query for the trajectories behind a change: those of its source that went wrong that way, after the best step.
export function behind(one) {
  const source = one.source === ALL || one.source.includes('"') ? "" : // a query cannot contain a quote
    `source:"${one.source}"`;
  const since = BAD.includes(one.verdict) && one.best_step !== null ? `step>${one.best_step}` : "";
  return [source, BAD.includes(one.verdict) ? WAYS[one.name] ?? "" : "", since].filter(Boolean).join(" ");
}

// The title of a number's chart.
function titleOf(run, name) {
  const chart = run.charts.find((one) => !one.family && one.names.includes(name));
  return chart ? chart.title : name;
}

function changed(places, runs) {
  const found = runs.flatMap((run, at) => run.changes.map((one) => ({ ...one, run: places[at].name, place: places[at], title: titleOf(run, one.name) })));
  if (!runs.some((run) => run.charts.length)) return [];
  if (!found.length) return [h("section", {}, h("h2", {}, "what changed"), h("p", {}, "No number that matters has clearly changed."))];
  found.sort((a, b) => BAD.includes(b.verdict) - BAD.includes(a.verdict));
  const rows = found.map((one) => h("tr", {}, h("td", {}, h("span", { class: `badge ${one.verdict === "better" ? "right" : BAD.includes(one.verdict) ? "wrong" : ""}` }, one.verdict)),
    ...(runs.length > 1 ? [h("td", {}, one.run)] : []), h("td", {}, one.source),
    h("td", {}, one.place.rows && !one.source.startsWith("eval/") ? h("a", { href: address(one.place.number, behind(one)), title: `trajectories behind ${one.name}` }, one.title) : one.title),
    ...[one.first, one.best, one.last].map((value) => h("td", { class: "number" }, value === null ? "" : number(Number(value.toPrecision(3))))),
    h("td", { class: "number" }, one.best_step ?? "")));
  const heads = ["", ...(runs.length > 1 ? ["run"] : []), "source", "number", "at first", "at best", "at last", "best until step"];
  const FEW = 8;
  return [h("section", {}, h("h2", {}, "what changed"), table(heads, rows.slice(0, FEW)),
    rows.length > FEW ? folded(`${rows.length - FEW} more`, table(heads, rows.slice(FEW))) : null)];
}

// How many samples are always, sometimes and never right, and which are never right.
function samples(names, runs) {
  const found = runs.map((run, at) => [names[at], run.by_sample]).filter(([, of]) => of);
  if (!found.length) return [];
  const name = (row) => (holds(row.sample) ? h("a", { href: `#/film/${encodeURIComponent(row.sample)}?all=1` }, row.sample) : row.sample);
  return [h("section", {}, h("h2", {}, "samples"), ...found.flatMap(([run, of]) => [
    h("p", {}, runs.length > 1 ? h("b", {}, `${run}: `) : "", `of ${of.samples} samples that were scored several times, ${of.always} are always right, ${of.sometimes} sometimes, ${of.never} never`),
    of.never ? folded(`never right${of.never > of.rows.length ? `, the first ${of.rows.length} of ${of.never}` : ""}`, table(["sample", "source", "times scored"],
      of.rows.map((row) => h("tr", {}, h("td", {}, name(row)), h("td", {}, row.source), h("td", { class: "number" }, row.scored))))) : null]))];
}

// Runs whose recipes differ only in their seed form one line, with a band from the lowest to the highest; a repeated seed gets its own line.
export function byLine(places, runs) {
  const lines = new Map();
  runs.forEach((run, at) => {
    const again = lines.get(run.line)?.runs.some((one) => one.seed === run.seed);
    const name = again ? `${run.line} ${at}` : run.line;
    if (!lines.has(name)) lines.set(name, { name: places[at].name, runs: [] });
    lines.get(name).runs.push(run);
  });
  return [...lines.values()].map((one) => ({ ...one,
    name: one.runs.length > 1 ? `${one.name.replace(/\/?seed-\d+$/, "") || one.name} (${one.runs.length} seeds)` : one.name }));
}

function thinNote(runs) {
  const width = Math.max(1, ...runs.flatMap((run) => Object.values(run.sources)).flatMap((of) => Object.values(of)).map((one) => one.width ?? 1));
  return width > 1 ? h("p", { class: "quiet" }, `Curves are thinned: a point is the mean of up to ${width} steps. metrics.jsonl in the folder of the run has every step.`) : null;
}

function pointsOf(line, source, name) {
  const curves = line.runs.map((run) => run.sources[source]?.[name]).filter(Boolean);
  const at = new Map();
  curves.forEach((one) => one.steps.forEach((step, place) => at.set(step, [...(at.get(step) ?? []), one.values[place]])));
  // Seeds with different progress may be thinned differently: keep a point only if all seeds that have got this far have it.
  const thin = curves.some((one) => one.width > 1);
  const whole = ([step, values]) => !thin || values.length === curves.filter((one) => one.steps.at(-1) >= step).length;
  return [...at].filter(whole).sort(([a], [b]) => a - b).map(([step, values]) => {
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return line.runs.length > 1 ? [step, mean, Math.min(...values), Math.max(...values)] : [step, mean];
  });
}

// `width`: number of steps that a point averages.
function drawnOf(line, source, name) {
  return { points: pointsOf(line, source, name), width: Math.max(1, ...line.runs.map((run) => run.sources[source]?.[name]?.width ?? 1)) };
}

const MAIN = ["accuracy", "faithful, of all", "a call shows a target"];

// Accuracy and looks of all runs, for the start page.
export function mainCurves(places, runs, asked, change) {
  const few = runs.map((run) => ({ ...run, charts: run.charts.filter((one) => MAIN.includes(one.title) && one.group !== "parts of the reward")
    .map((one) => ({ ...one, group: "" })) }));
  const there = few.map((_, at) => at).filter((at) => few[at].charts.length);
  return there.length ? curves(there.map((at) => places[at]), there.map((at) => few[at]), asked, change) : [];
}

function curves(places, runs, asked, change) {
  const sources = [...new Set(runs.flatMap((run) => Object.keys(run.sources)))].sort((a, b) => (b === ALL) - (a === ALL) || a.localeCompare(b));
  if (!sources.length) return [];
  const lines = byLine(places, runs);
  const chosen = asked.sources.length ? sources.filter((one) => asked.sources.includes(one)) : byDefault(sources, lines.length);
  const steps = runs.flatMap((run) => Object.values(run.sources).flatMap((of) => Object.values(of).flatMap((one) => [one.steps[0], one.steps.at(-1)])));
  const whole = { from: Math.min(...steps), to: Math.max(...steps) };
  const view = { from: asked.from ?? whole.from, to: asked.to ?? whole.to, smooth: asked.smooth,
    zoom: (from, to) => change({ ...asked, from: Math.max(whole.from, Math.floor(from)), to: Math.min(whole.to, Math.ceil(to)) }),
    link: (step) => linkTo(places, step) };
  const charts = [...new Map(runs.flatMap((run) => run.charts).map((one) => [`${one.group} ${one.title}`, one])).values()];
  const groups = Map.groupBy(charts, (one) => one.group);
  const colour = (line, source) => (lines.length > 1 ? lines.indexOf(line) : sources.indexOf(source)) % COLOURS;
  const dash = (line, source) => (lines.length > 1 ? Math.max(chosen.indexOf(source), 0) : Math.floor(sources.indexOf(source) / COLOURS));
  const seriesOf = (one) => (one.family
    ? lines.flatMap((line, nth) => one.names.map((name, at) => ({ name: lines.length > 1 ? `${line.name} ${name}` : name, colour: at % COLOURS,
      dash: lines.length > 1 ? nth : Math.floor(at / COLOURS), ...drawnOf(line, chosen[0], name) }))).filter((series, _, all) => series.points.some(([, y]) => y !== 0) || all.length === 1)
    : lines.flatMap((line) => chosen.map((source) => ({ name: [lines.length > 1 ? line.name : "", source].filter(Boolean).join(" "),
      colour: colour(line, source), dash: dash(line, source), ...drawnOf(line, source, one.names[0]) })))).filter((series) => series.points.length);
  const sections = [...groups].map(([group, of]) => {
    const drawings = of.map((one) => [one, seriesOf(one)]).filter(([, series]) => series.length).map(([one, series]) =>
      h("div", {}, chart({ title: one.family && chosen[0] !== ALL ? `${one.title} (${chosen[0]})` : one.title, unit: one.unit, series }, view),
        one.family ? legend(series.map((line) => ({ ...line, name: `${line.name}, mean ${number(meanOf(line, view))}` }))) : null));
    const body = h("div", { class: "charts" }, ...drawings);
    if (!drawings.length) return null;
    if (!group) return body;
    return group === "everything else" ? folded(group, body) : h("section", {}, h("h3", {}, group), body);
  });
  return [h("section", { "aria-label": "Curves" }, h("h2", {}, "curves"), thinNote(runs), controls(sources, chosen, lines, asked, view, whole, change, colour), ...sections)];
}

// A single source is the same as the row over all; with several runs, one line each is enough at first.
function byDefault(sources, lines) {
  if (lines > 1) return sources.slice(0, 1);
  const own = sources.filter((one) => one !== ALL && !one.startsWith("eval/"));
  const alike = own.length === 1 ? own : [];
  return sources.filter((one) => !alike.includes(one)).slice(0, COLOURS);
}

// A link to the trajectories of the nearest kept step.
function linkTo(places, step) {
  const place = places.find((one) => one.facets.step.length);
  if (!place) return null;
  const near = place.facets.step.map(Number).reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best));
  return { address: address(place.number, `step:${near}`), text: near === step ? "trajectories" : `trajectories of step ${near}, the nearest that ${held ? "this file holds" : "is kept"}` };
}

// The mean over the steps in view.
function meanOf(line, view) {
  const values = line.points.filter(([step]) => step >= view.from && step <= view.to).map(([, value]) => value);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

function legend(series) {
  return h("p", { class: "legend" }, ...series.map((one) => h("span", {}, h("i", { class: `swatch c${one.colour}` }), one.name)));
}

// The dash pattern of a source, when colours stand for runs.
function dashOf(nth) {
  return nth < 0 ? "" : s("svg", { class: "dash", viewBox: "0 0 30 8", width: 30, height: 8, "aria-hidden": "true" },
    s("line", { x1: 0, x2: 30, y1: 4, y2: 4, "stroke-dasharray": DASHES[nth % DASHES.length] }));
}

function controls(sources, chosen, lines, asked, view, whole, change, colour) {
  const boxes = sources.map((source) => h("label", {}, h("input", { type: "checkbox", checked: chosen.includes(source), onchange: (event) => {
    const next = event.target.checked ? [...chosen, source] : chosen.filter((one) => one !== source);
    change({ ...asked, sources: next });
  } }), lines.length > 1 ? dashOf(chosen.indexOf(source)) : h("i", { class: `swatch c${colour(lines[0], source)}` }), source));
  const smooth = h("label", {}, "mean of ", h("select", { onchange: (event) => change({ ...asked, smooth: Number(event.target.value) }) },
    ...SMOOTH.map((steps) => h("option", { value: steps, selected: Number(steps) === asked.smooth }, steps))), " steps");
  const zoomed = view.from !== whole.from || view.to !== whole.to;
  return h("div", { class: "filters" }, h("fieldset", {}, h("legend", {}, "sources"), ...boxes),
    lines.length > 1 ? legend(lines.map((line) => ({ name: line.name, colour: colour(line) }))) : null, smooth,
    zoomed ? h("button", { type: "button", onclick: () => change({ ...asked, from: null, to: null }) }, `steps ${view.from} to ${view.to}: show all`) : null);
}

// Rows left after each filter, with their share of the initial rows.
function funnel(one) {
  const rows = one.rows.map(([source, ...counts]) => h("tr", {}, h("th", { scope: "row" }, source),
    ...counts.map((count) => h("td", { class: "number" }, count, bar(Number(count) / Number(counts[0]))))));
  return h("section", {}, h("h2", {}, "rows left after each step"), table(one.head, rows));
}

function bar(share) {
  return Number.isFinite(share) ? s("svg", { class: "bar", viewBox: "0 0 100 6", width: 100, height: 6, "aria-hidden": "true" },
    s("path", { class: "whole", d: "M0 3H100" }), s("path", { class: "part", d: `M0 3H${(100 * share).toFixed(1)}` })) : "";
}

export function drawn(one, prefix, fold = one.rows.length > 12) {
  const rows = one.rows.map(([first, ...cells]) => h("tr", { class: cells.at(-1) === "reported" ? "reported" : null }, h("th", { scope: "row" }, first),
    ...cells.map((cell) => h("td", { class: /^[\d.–-]/.test(cell) ? "number" : null }, cell))));
  const body = [one.note ? h("p", { class: "quiet" }, one.note) : null, one.head.length ? table(one.head, rows) : null];
  return fold ? folded(`${prefix}${one.title}`, ...body) : h("section", {}, h("h2", {}, `${prefix}${one.title}`), ...body);
}

function folded(title, ...body) {
  return h("details", {}, h("summary", {}, title), ...body);
}

function keysOf(runs, kind) {
  return [...new Set(runs.flatMap((run) => Object.keys(run[kind])))];
}

function sideBySide(names, runs, kind, keys) {
  const rows = keys.map((key) => h("tr", {}, h("th", { scope: "row" }, key), ...runs.map((run) => h("td", {}, run[kind][key] ?? "–"))));
  return table(["", ...names], rows);
}

function differing(names, runs, kind) {
  const keys = keysOf(runs, kind);
  if (runs.length < 2 || !keys.length) return [];
  const differ = keys.filter((key) => new Set(runs.map((run) => run[kind][key] ?? "–")).size > 1);
  return [h("section", {}, h("h2", {}, `what differs: ${kind}`), differ.length ? sideBySide(names, runs, kind, differ) : h("p", {}, "nothing"))];
}

function recipes(names, runs, kind) {
  const keys = keysOf(runs, kind);
  return keys.length ? [folded(kind, sideBySide(names, runs, kind, keys))] : [];
}
