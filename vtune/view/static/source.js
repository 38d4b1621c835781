// Where values come from: the viewer that serves this page, or the page itself if it is a file.

import { query, select } from "./query.js";

const held = document.getElementById("held");
const kept = held ? JSON.parse(held.textContent) : null;
export const ROWS = 100;
const FILMS = 12;

export const offline = kept !== null;
export const note = kept?.note ?? "";

async function ask(path, options) {
  const answer = await fetch(path, options).catch(() => {
    throw new Error("the viewer does not answer; start `vtune view` again, and open the address that it prints");
  });
  const values = await answer.json().catch(() => ({ error: `the viewer failed (status ${answer.status}); its terminal says why` }));
  if (!answer.ok) throw new Error([values.error ?? `the viewer answers with status ${answer.status}`, values.fix].filter(Boolean).join("; "));
  return values;
}

function inUrl(key) {
  return key.split("/").map(encodeURIComponent).join("/");
}

export async function places() {
  return kept ? kept.places : ask("api/places");
}

export async function overview(place) {
  return kept ? kept.runs[place] : ask(`api/${place}/run`);
}

export async function list(place, text, first = 0) {
  if (!kept) return ask(`api/${place}/list?q=${encodeURIComponent(text)}&first=${first}`);
  const found = select(kept.lists[place], query(text));
  return { all: kept.lists[place].length, found: found.length, first, trajectories: found.slice(first, first + ROWS) };
}

export async function one(place, key) {
  if (!kept) return ask(`api/${place}/one/${inUrl(key)}`);
  const found = kept.ones[`${place}/${key}`];
  if (!found) throw new Error(`${key} is not in this file`);
  return found;
}

export async function tokens(place, key, first) {
  return ask(`api/${place}/tokens/${inUrl(key)}?first=${first}`);
}

// Trajectories of a sample, ordered by place, step and rollout; only from some places, if numbers are given.
export async function film(sample, numbers = null) {
  if (!kept) return ask(`api/film?sample=${encodeURIComponent(sample)}${numbers ? `&places=${numbers}` : ""}`);
  return kept.lists.flatMap((rows, place) => (!numbers || numbers.includes(place) ? rows.filter((row) => row.sample === sample).map((row) => ({ ...row, place })) : []));
}

// Whether any trajectory of a sample can be shown.
export function holds(sample) {
  return kept === null || kept.lists.some((rows) => rows.some((row) => row.sample === sample));
}

// A side is a place, with a step if it has several: "2" or "0:99".
export function sidesOf(text) {
  return text.split(",").map((side) => {
    const [place, step] = side.split(":");
    return { number: Number(place), step: step === undefined ? null : Number(step) };
  });
}

// Pairs worth comparing among some places, given by number.
export async function pairs(numbers) {
  return kept ? Object.keys(kept.pairs).filter((text) => sidesOf(text).every((side) => numbers.includes(side.number))) : ask(`api/pairs?places=${numbers}`);
}

// The comparison of two sides, given as in an address, see `vtune.runs.view.pairs`.
export async function pair(text) {
  if (!kept) return ask(`api/pair?sides=${encodeURIComponent(text)}`);
  if (!kept.pairs[text]) throw new Error("These two are not compared in this file: vtune view compares any two.");
  return kept.pairs[text];
}

// Samples with rollouts in several of these places, or in several steps of one, those that change the most first.
export async function films(numbers) {
  if (!kept) return ask(`api/films?places=${numbers}`);
  const moments = (frames) => new Set(frames.map((one) => `${one.place} ${one.step}`)).size;
  return kept.films.map((one) => ({ ...one, frames: one.frames.filter((frame) => numbers.includes(frame.place)) })).filter((one) => moments(one.frames) > 1).slice(0, FILMS);
}

// The sweeps among the opened folders, see `vtune.runs.view.sweeps`.
export async function sweeps() {
  return kept ? kept.sweeps : ask("api/sweeps");
}

export function picture(place, index, key) {
  return kept ? kept.pictures[kept.shown[`${place}/${index}/${key}`]] : `api/${place}/picture/${index}/${inUrl(key)}`;
}

export async function label(place, key, said) {
  const options = { method: "POST", body: JSON.stringify(said), headers: { "content-type": "application/json" } };
  return ask(`api/${place}/label/${inUrl(key)}`, options);
}
