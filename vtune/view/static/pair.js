// Two models, or two checkpoints of one: what each answers right, and what only one of them looks at.

import { h, number, table } from "./dom.js";
import { address } from "./list.js";
import { sidesOf } from "./source.js";

const KINDS = [["gained", "wrong → right"], ["lost", "right → wrong"], ["found", "right in both, and only the second looks at the target"],
  ["guessed", "right in both, and only the first looks at the target"]];

export function pairAddress(first, second) {
  return `#/pair/${sideText(first)},${sideText(second)}`;
}

function sideText({ number: place, step }) {
  return step === null || step === undefined ? String(place) : `${place}:${step}`;
}

// pairs: the two sides of each as text, see `vtune.runs.view.pairs.suggested`.
export function pairLinks(places, pairs) {
  return pairs.map(sidesOf).map(([first, second]) =>
    h("a", { href: pairAddress(first, second) }, `${sideName(places, first)} → ${sideName(places, second)}`));
}

function sideName(places, { number: place, step }) {
  const { name } = places.find((one) => one.number === place);
  return step === null ? name : `${name} step ${step}`;
}

export function pairPage(places, sides, found, go) {
  const names = sides.map((side) => sideName(places, side));
  const choose = !go ? [] : sides.map((side, at) => h("label", {}, at ? "with " : "compare ", h("select", { onchange: (event) => {
    go(sides.map((one, nth) => (nth === at ? sidesOf(event.target.value)[0] : one)));
  } }, ...choices(places).map((one) => h("option", { value: sideText(one), selected: sideText(one) === sideText(side) }, sideName(places, one))))));
  const head = [h("h1", {}, names.join(" → ")), h("div", { class: "filters" }, ...choose)];
  if (!found.samples) return [...head, h("p", {}, "No sample is scored in both.")];
  const { both, first, second, neither } = found.right;
  const percent = (value) => `${number(Number((100 * value).toPrecision(3)))} %`;
  const cells = [["", `${names[1]} right`, `${names[1]} wrong`], [`${names[0]} right`, both, first], [`${names[0]} wrong`, second, neither]];
  return [...head,
    h("p", {}, `${found.samples} samples are scored in both: ${percent(found.accuracy[0])} → ${percent(found.accuracy[1])} right. `
      + `${second} gained, ${first} lost.`),
    table(cells[0], cells.slice(1).map(([name, ...counts]) => h("tr", {}, h("th", { scope: "row" }, name), ...counts.map((one) => h("td", { class: "number" }, one))))),
    h("p", { class: "quiet" }, "A sample with several rollouts counts as right where half of them are.",
      ...(sides.every(({ number: place }) => places[place].kind === "evaluation") ? [" How sure the difference is: ", h("code", {}, "vtune compare"), "."] : [])),
    ...KINDS.flatMap(([kind, title]) => listed(places, sides, names, title, found[kind]))];
}

function choices(places) {
  return places.filter((one) => one.rows && one.kind !== "samples")
    .flatMap((one) => (one.facets.step.length > 1 ? one.facets.step.map((step) => ({ number: one.number, step: Number(step) })) : [{ number: one.number, step: null }]));
}

function listed(places, sides, names, title, { count, rows }) {
  if (!count) return [];
  const film = (row) => `#/film/${encodeURIComponent(row.sample)}?only=${encodeURIComponent(sides.map(sideText).join(","))}`;
  const lines = rows.map((row) => h("tr", {}, h("td", {}, h("a", { href: film(row) }, row.sample)), h("td", {}, row.source),
    ...["first", "second"].map((side, at) => h("td", {}, h("a", { href: address(sides[at].number, "", row[side].key) }, row[side].answer ?? "no answer"))),
    h("td", { class: "question" }, row.question)));
  const cut = rows.length < count ? `, the first ${rows.length} are listed` : "";
  return [h("section", {}, h("h2", {}, `${title}: ${count}${cut}`), rows.length ? table(["side by side", "source", ...names.map((one) => `answer of ${one}`), "question"], lines)
    : h("p", {}, "None of them is in this file."))];
}
