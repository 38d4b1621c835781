// Trajectories side by side: one sample over steps and models, or the rollouts of a group.

import { clean, h, number } from "./dom.js";
import { address } from "./list.js";
import { figure } from "./picture.js";

const MOST = 24;
const WIDEST = 260;

// The first rollout of each step and place.
export function firstOfEach(frames) {
  const seen = new Set();
  return frames.filter((one) => {
    const name = `${one.place} ${one.step}`;
    return !seen.has(name) && seen.add(name);
  });
}

// rows: [{place, key, step, rollout, …}], evenly thinned if there are too many; load returns their documents. One that cannot be read shows the error.
export async function strip(places, rows, load) {
  const count = Math.min(rows.length, MOST);
  const shown = Array.from({ length: count }, (_, at) => rows[count === 1 ? 0 : Math.round((at * (rows.length - 1)) / (count - 1))]);
  const ones = await Promise.all(shown.map((row) => load(row.place, row.key).catch((error) => ({ unread: error.message }))));
  const frames = shown.map((row, at) => frame(places[row.place], row, ones[at], places.length > 1));
  const cut = rows.length > count ? h("p", { class: "quiet" }, `${count} of ${rows.length} are shown, evenly`) : null;
  return [h("div", { class: "strip", tabindex: "0", role: "region", "aria-label": "Frames" }, ...frames), cut];
}

function frame(place, row, one, named) {
  const title = [named ? place.name : "", row.step === null ? "" : `step ${row.step}`, `rollout ${row.rollout ?? 0}`].filter(Boolean).join(", ");
  if (one.unread) return h("article", { class: "frame" }, h("h3", {}, title), h("p", { class: "text error" }, one.unread));
  const crops = one.calls.flatMap((call) => call.crops).filter((crop) => crop.shown !== null).slice(-2);
  return h("article", { class: "frame" },
    h("h3", {}, h("a", { href: address(place.number, "", row.key) }, title)),
    h("p", {}, badge(row.right, "right", "wrong"), " ", badge(row.faithful, "faithful", "not faithful"),
      row.reward === null || row.reward === undefined ? "" : ` reward ${number(row.reward)}`),
    one.pictures.length ? figure(place, one, 0, WIDEST) : null,
    ...crops.map((crop) => figure(place, one, crop.shown, WIDEST / 2)),
    h("p", { class: "text answer" }, `answer ${one.answer ?? "none"}`));
}

function badge(value, yes, no) {
  if (value === null || value === undefined) return "";
  return h("span", { class: `badge ${value ? "right" : "wrong"}` }, value ? yes : no);
}

// only: the places to show, each with an optional step, as written in an address; see `sidesOf`.
export async function filmPage(places, sample, frames, all, load, only = null) {
  const rows = all ? frames : firstOfEach(frames);
  const base = `#/film/${encodeURIComponent(sample)}`;
  const asked = (more) => [base, [only ? `only=${encodeURIComponent(only)}` : "", more].filter(Boolean).join("&")].filter(Boolean).join("?");
  const other = h("p", { class: "facts" }, frames.length > rows.length || all ? h("a", { href: asked(all ? "" : "all=1") }, all ? "one rollout of each step" : "all rollouts") : null,
    only ? h("a", { href: base }, "all steps and models") : null);
  return [h("h1", {}, `Sample ${clean(sample)}`),
    h("p", { class: "quiet" }, "What calls showed of the same picture, over steps and models; evidence is dashed."),
    other, ...(rows.length ? await strip(places, rows, load) : [h("p", {}, "There is no trajectory of this sample.")])];
}

export async function groupPage(places, place, one, load) {
  const rows = one.siblings.map((row) => ({ ...row, place: place.number }));
  return [h("h1", {}, `Group of ${clean(one.key)}`), h("p", {}, h("a", { href: address(place.number, "", one.key) }, "back to the trajectory")),
    ...(await strip(places, rows, load))];
}
