// The places, and the list of a place.

import { h, number, table } from "./dom.js";
import { ROWS } from "./source.js";

export const LABELS = ["right", "wrong", "judge erred", "box wrong"];
const UNSORTED = ["flags", "label"];
const TEXTS = ["source", "stop"]; // free-text facts among the menus
const COLUMNS = ["step", "source", "right", "faithful", "reward", "calls", "tokens", "stop", "flags", "answer", "label"];
const ORDINARY = { stop: "answer" }; // values too common to need a column

// The address of a list from its row `first` on, or of a trajectory opened from there.
export function address(place, query, key = "", first = 0) {
  const parts = [place, ...key.split("/").filter(Boolean).map(encodeURIComponent)];
  const asked = [query ? `q=${encodeURIComponent(query)}` : "", first ? `first=${first}` : ""].filter(Boolean);
  return `#/${parts.join("/")}${asked.length ? "?" : ""}${asked.join("&")}`;
}

export function runAddress(numbers) {
  return `#/run/${numbers.join(",")}`;
}

const SCORE = "score"; // only evaluations have one
const COLUMN = ["right", "right and faithful, of all", "faithful, of the right"];
const DEPENDENT = "right and dependent, of all"; // followed by the exchange, in parentheses

export function placesPage(places, runs) {
  const boxes = places.map((one) => h("input", { type: "checkbox", "aria-label": `compare ${one.name}`, onchange: () => {
    const chosen = places.filter((_, at) => boxes[at].checked).map((place) => place.number);
    link.toggleAttribute("hidden", chosen.length < 2);
    link.setAttribute("href", runAddress(chosen));
  } }));
  const link = h("a", { hidden: true, href: "#/" }, "compare the ticked ones");
  const audited = runs.map((run) => run.headline.rows.filter((row) => row.name.startsWith(DEPENDENT)));
  const some = audited.some((found) => found.length);
  const columns = runs.some((run) => named(run, SCORE)) ? [SCORE, ...COLUMN] : COLUMN;
  const rows = places.map((one, at) => h("tr", {}, h("td", {}, boxes[at]),
    h("td", {}, h("a", { href: runAddress([one.number]) }, one.name)),
    h("td", {}, one.kind), ...columns.map((name) => h("td", { class: "number" }, shortly(named(runs[at], name)))),
    some ? h("td", { class: "number" }, ...audited[at].map((row) => h("div", {}, `${shortly(row)}${row.name.slice(DEPENDENT.length)}`))) : null,
    h("td", { class: "number" }, h("a", { href: address(one.number, "") }, one.rows < one.there ? `${one.rows} of ${one.there}` : one.rows)), h("td", { class: "path" }, one.path,
      runs[at].unfinished ? h("div", { class: "text" }, runs[at].unfinished) : null, runs[at].problem ? h("div", { class: "text error" }, runs[at].problem) : null)));
  return [h("h1", {}, "Runs"), h("p", {}, link),
    table([h("span", { class: "unseen" }, "compare"), "name", "kind", ...columns, ...(some ? [DEPENDENT] : []), "trajectories", "path"], rows)];
}

function named(run, name) {
  return run.headline.rows.find((row) => row.name === name);
}

function shortly(row) {
  if (!row) return "";
  const part = (one) => (row.share ? `${(100 * one.value).toFixed(1)} %` : number(Number(one.value.toPrecision(3))));
  return row.first ? `${part(row.first)} → ${part(row.last)}` : part(row.last);
}

export function listPage(place, query, found, ask) {
  const box = h("input", { type: "search", id: "query", value: query, "aria-label": "Query", autocomplete: "off",
    placeholder: 'right:no calls>1 sort:-reward "red sign"' });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); ask(box.value); } },
    box, h("button", { type: "submit" }, "Find"));
  const choices = [["right", ["yes", "no", "none"]], ["faithful", ["yes", "no", "none"]], ["label", LABELS],
    ...Object.entries(place.facets)].filter(([, values]) => values.length > 0);
  const selects = choices.map(([name, values]) => h("label", {}, `${name} `, h("select", {
    onchange: (event) => ask(withTerm(query, name, event.target.value)) },
    h("option", { value: "" }, "any"),
    ...values.map((value) => h("option", { value, selected: termOf(query, name) === value }, value)))));
  const columns = COLUMNS.filter((name) => found.trajectories.some((row) => ![null, "", ORDINARY[name]].includes(row[name])));
  const rows = found.trajectories.map((row) => h("tr", {},
    h("td", {}, h("a", { href: address(place.number, query, row.key, found.first) }, row.key)),
    ...columns.map((name) => h("td", { class: typeof row[name] === "number" ? "number" : null }, number(row[name]))),
    h("td", { class: "question" }, row.question)));
  const heads = columns.map((name) => UNSORTED.includes(name) ? name : h("button", { class: "sort", title: `sort by ${name}`,
    onclick: () => ask(withTerm(query, "sort", termOf(query, "sort") === `-${name}` ? name : `-${name}`)) }, name));
  const more = (first) => address(place.number, query, "", first);
  const last = found.first + found.trajectories.length;
  return [h("h1", {}, place.name), place.problem ? h("p", { class: "text error" }, place.problem) : null, form, h("div", { class: "filters" }, ...selects),
    h("p", {}, `${found.found} of ${found.all}${found.all < place.there ? ` that this file holds, of ${place.there}` : ""}${found.trajectories.length < found.found ? `, ${found.first + 1} to ${last} shown` : ""}`),
    found.trajectories.length ? table(["key", ...heads, "question"], rows) : h("p", {}, found.all < place.there ? "Nothing in this file matches." : "Nothing matches."),
    found.hint ? h("p", { class: "facts" }, found.hint) : null,
    h("p", { class: "facts" }, found.first > 0 ? h("a", { href: more(Math.max(found.first - ROWS, 0)) }, "those before") : null,
      last < found.found ? h("a", { href: more(last) }, "those after") : null)];
}

function termOf(query, name) {
  const found = new RegExp(`(?:^|\\s)${name}:("[^"]*"|\\S+)`).exec(query);
  return found ? found[1].replaceAll('"', "") : "";
}

function withTerm(query, name, value) {
  const rest = query.replace(new RegExp(`(^|\\s)${name}:("[^"]*"|\\S+)`), " ").trim();
  // Quoted: a comma would split it, and a source may be called none.
  const written = /[\s,]/.test(value) || (value === "none" && TEXTS.includes(name)) ? `"${value}"` : value;
  return value ? `${rest} ${name}:${written}`.trim() : rest;
}
