// The address holds the current page: #/PLACE?q=QUERY a list, #/PLACE/KEY a trajectory, #/run/PLACE,… one or several runs,
// #/film/SAMPLE and #/group/PLACE/KEY side by side, #/pair/SIDE,SIDE two models. Keys: j next, k previous, / search, u up.

import { clean, h } from "./dom.js";
import { filmPage, firstOfEach, groupPage, strip } from "./frames.js";
import { address, listPage, placesPage, runAddress } from "./list.js";
import { pairAddress, pairLinks, pairPage } from "./pair.js";
import { mainCurves, runPage } from "./run.js";
import * as source from "./source.js";
import { sweepSections } from "./sweep.js";
import { trajectoryPage } from "./trajectory.js";

const main = document.getElementById("main");
const LIVE = 5000;
const PAGES = ["run", "film", "group", "pair"];
let revisions = "";
const known = new Map();
let turn = 0;
let around = { list: "", keys: [] };

function here() {
  const [path, asked = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  const page = PAGES.includes(parts[0]) ? parts.shift() : "";
  const [place = "", ...key] = parts;
  const values = new URLSearchParams(asked);
  return { page, place, key: key.join("/"), query: values.get("q") ?? "", first: Number(values.get("first") ?? 0), values };
}

async function show() {
  const at = here();
  turn += 1;
  const mine = turn;
  try {
    const places = await source.places();
    revisions = JSON.stringify(places.map((one) => one.revision));
    const [children, title, place] = await pageOf(at, places);
    if (mine !== turn) return; // another page was requested in the meantime
    crumbs(place, at);
    document.title = clean(`${title} · vtune view`);
    main.replaceChildren(...children.filter(Boolean));
  } catch (error) {
    if (mine !== turn) return;
    revisions = ""; // so that `follow` tries again
    main.replaceChildren(h("h1", {}, "This cannot be shown"), h("p", {}, error.message));
  }
}

async function pageOf(at, places) {
  if (at.page === "run") return runs(at, places);
  if (at.page === "film") {
    const sample = [at.place, at.key].filter(Boolean).join("/");
    const only = at.values.get("only");
    const sides = only ? source.sidesOf(only) : null;
    const frames = await source.film(sample, sides?.map((side) => side.number));
    const asked = frames.filter((frame) => !sides || sides.some((side) => side.number === frame.place && (side.step === null || side.step === frame.step)));
    return [await filmPage(places, sample, asked, at.values.has("all"), source.one, only), sample, null];
  }
  if (at.page === "pair") return pair(at, places);
  const place = places[Number(at.place)];
  if (at.place === "" || !place) {
    const sweeps = await source.sweeps();
    return places.length === 1 && !sweeps.length ? runs({ ...at, place: "0" }, places) : all(at, places, sweeps);
  }
  if (at.page === "group") return [await groupPage(places, place, await source.one(place.number, at.key), source.one), at.key, place];
  return at.key ? trajectory(at, place) : list(at, place);
}

function chartOf(element) {
  return element?.matches(".chart") ? element.closest(".charted").querySelector("b").textContent : null;
}

// Overviews of places, cached until they change.
async function overviews(places) {
  return Promise.all(places.map(async (one) => {
    const name = `${one.number} ${one.revision}`;
    if (!known.has(name)) known.set(name, await source.overview(one.number));
    return known.get(name);
  }));
}

async function all(at, places, sweeps) {
  const runs = await overviews(places);
  const [asked, change] = settings(at, "#/");
  const curves = mainCurves(places, runs, asked, change);
  return [[...said(), ...sweepSections(sweeps), ...placesPage(places, runs), ...await compared(places), ...curves, ...await film(places, places)], "runs", null];
}

async function runs(at, places) {
  const chosen = at.place.split(",").map((number) => places[Number(number)]).filter(Boolean);
  const [asked, change] = settings(at, runAddress(chosen.map((one) => one.number)));
  const beside = [...await compared(chosen), ...await film(places, chosen)];
  const page = runPage(chosen, await overviews(chosen), asked, change, beside);
  return [[...(places.length === 1 ? said() : []), ...page], chosen.map((one) => one.name).join(" and "), chosen.length === 1 ? chosen[0] : null];
}

async function pair(at, places) {
  const sides = source.sidesOf(at.place);
  if (sides.length !== 2 || sides.some((side) => !places[side.number])) throw new Error("Name two sides, as in #/pair/0,1 or #/pair/0:4,0:9.");
  const go = source.offline ? null : (next) => { location.hash = pairAddress(...next); };
  return [pairPage(places, sides, await source.pair(at.place), go), "two compared", null];
}

async function compared(places) {
  const links = pairLinks(places, await source.pairs(places.map((one) => one.number)));
  return links.length ? [h("p", { class: "facts" }, "answers compared:", ...links)] : [];
}

function said() {
  return source.note ? [h("p", { class: "quiet" }, source.note)] : [];
}

// The settings of the curves in the address, and a way to change them.
function settings(at, base) {
  const number = (name) => (at.values.has(name) ? Number(at.values.get(name)) : null);
  const asked = { sources: at.values.get("sources")?.split("\n") ?? [], from: number("from"), to: number("to"), smooth: number("smooth") ?? 1 };
  const change = async (next) => {
    const values = { from: next.from, to: next.to, smooth: next.smooth > 1 ? next.smooth : null, sources: next.sources.join("\n") || null };
    const set = Object.entries(values).filter(([, value]) => value !== null).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    const [down, focused] = [scrollY, chartOf(document.activeElement)];
    history.replaceState(null, "", `${base}${set.length ? "?" : ""}${set.join("&")}`);
    await show();
    scrollTo(0, down);
    [...document.querySelectorAll(".chart")].find((one) => chartOf(one) === focused)?.focus({ preventScroll: true });
  };
  return [asked, change];
}

// The sample whose frames change the most in the chosen places, and links to other such samples.
async function film(places, chosen) {
  const numbers = chosen.map((one) => one.number);
  const found = await source.films(numbers);
  if (!found.length) return [];
  const [first, ...others] = found;
  const only = chosen.length < places.length ? `?only=${numbers}` : "";
  const link = ({ sample }) => h("a", { href: `#/film/${encodeURIComponent(sample)}${only}` }, sample);
  const links = others.map(link);
  return [h("section", {}, h("h2", {}, "one sample over time"),
    h("p", {}, link(first), ": what calls showed of the same picture; evidence is dashed"),
    ...(await strip(places, firstOfEach(first.frames), source.one)),
    links.length ? h("p", { class: "facts" }, "others:", ...links) : null)];
}

async function list(at, place) {
  const found = await source.list(place.number, at.query, at.first);
  const ask = (text) => { location.hash = address(place.number, text); };
  return [listPage(place, at.query, found, ask), place.name, place];
}

async function trajectory(at, place) {
  const one = await source.one(place.number, at.key);
  const name = `${place.number} ${at.first} ${at.query} ${revisions}`;
  if (around.list !== name || !around.keys.includes(at.key)) {
    around = { list: name, keys: (await source.list(place.number, at.query, at.first)).trajectories.map((row) => row.key) };
  }
  const nth = around.keys.indexOf(at.key);
  const beside = { first: at.first, before: around.keys[nth - 1], after: nth < 0 ? undefined : around.keys[nth + 1] };
  const say = source.offline ? null : async (label, note) => {
    const status = document.getElementById("status");
    try {
      const { file } = await source.label(place.number, at.key, { label, note });
      status.textContent = clean(`${label ? `labelled: ${label}` : "label taken back"}, in ${file}`);
    } catch (error) {
      status.textContent = clean(`not labelled: ${error.message}`);
      return;
    }
    await show();
  };
  const tokens = source.offline ? null : (first) => source.tokens(place.number, at.key, first);
  return [trajectoryPage(place, at.query, one, beside, say, tokens), at.key, place];
}

function crumbs(place, { query, key, first }) {
  const parts = place ? [" / ", h("a", { href: runAddress([place.number]) }, place.name),
    " / ", h("a", { href: address(place.number, query, "", first) }, "trajectories"), ...(key ? [" / ", key] : [])] : [];
  document.getElementById("crumbs").replaceChildren(...h("span", {}, ...parts).childNodes);
}

function warn(text) {
  const warning = document.getElementById("warning");
  if (warning.textContent !== text) warning.textContent = clean(text);
}

addEventListener("hashchange", async () => {
  await show();
  scrollTo(0, 0);
});

addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const { page, place, query, key, first } = here();
  if (event.key === "j") document.querySelector("a[rel=next]")?.click();
  else if (event.key === "k") document.querySelector("a[rel=prev]")?.click();
  else if (event.key === "u" && key) location.hash = page ? `#/${place}/${key.split("/").map(encodeURIComponent).join("/")}` : address(place, query, "", first);
  else if (event.key === "/" && document.getElementById("query")) {
    event.preventDefault();
    document.getElementById("query").focus();
  }
});

// Update the page of a running run, but leave a trajectory that is being read. If the viewer was stopped, say so.
async function follow() {
  if (document.hidden) return;
  let places;
  try {
    places = await source.places();
  } catch (error) {
    warn(`This page is no longer updated: ${error.message}`);
    return;
  }
  warn("");
  if ((here().key && here().page !== "run") || document.activeElement?.matches("input, select, .chart")) return;
  if (JSON.stringify(places.map((one) => one.revision)) === revisions) return;
  const down = scrollY;
  await show();
  scrollTo(0, down);
}

if (!source.offline) setInterval(follow, LIVE);

await show();
