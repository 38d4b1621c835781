// The tokens of a trajectory, loaded on demand, each with what its record holds about it.

import { clean, h, number } from "./dom.js";

const SHADES = ["log-probability", "entropy", "advantage", "weight version"];
const KEYS = { "log-probability": "logprob", entropy: "entropy", advantage: "advantage", "weight version": "version" };
const LIMITS = [-0.1, -1, -3];
const UNSURE = [0.1, 0.7, 1.5]; // nats: almost certain, a coin toss, four or five options
const VERSIONS = 6;

// load(first) fetches entries; null in a file, which has none.
export function tokenStrip(load) {
  if (!load) return h("section", { class: "tokens" }, h("h2", {}, "tokens"), h("p", { class: "quiet" }, "Tokens are not in this file: vtune view shows them."));
  const place = h("div", {});
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      place.replaceChildren(...drawn(await load(0), load));
      button.remove();
    } catch (error) {
      place.replaceChildren(h("p", { class: "error" }, error.message));
      button.disabled = false;
    }
  } }, "show tokens");
  return h("section", { class: "tokens" }, h("h2", {}, "tokens"), button, place);
}

function drawn(found, load) {
  const missing = Object.entries(found.missing).map(([name, why]) => h("li", {}, `no ${name}: ${why}`));
  const summary = [h("p", { class: "quiet" }, `${found.count} tokens, ${found.sampled} of them sampled by the policy; those that it did not sample are dim`),
    missing.length ? h("ul", { class: "quiet" }, ...missing) : null];
  if (!found.entries.length) return summary.filter(Boolean);
  const shades = SHADES.filter((name) => !(name in found.missing));
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a token, or focus the strip and use the arrow keys.");
  const entries = [];
  let current = -1;
  const strip = h("div", { class: "strip-of-tokens", tabindex: "0", role: "application", "aria-label": "Tokens: arrow keys read their values",
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      read(Math.min(Math.max(current + step, 0), entries.length - 1));
    },
    onpointerover: (event) => pointed(event), onclick: (event) => pointed(event) });
  const pointed = (event) => {
    const nth = [...strip.children].indexOf(event.target);
    if (nth >= 0) read(nth);
  };
  const read = (nth) => {
    strip.children[current]?.classList.remove("current");
    current = nth;
    strip.children[nth].classList.add("current");
    strip.children[nth].scrollIntoView({ block: "nearest" });
    readout.textContent = clean(said(entries[nth], found.missing));
  };
  const chosen = h("select", { onchange: () => shade() }, ...shades.map((name) => h("option", {}, name)));
  const meant = h("span", { class: "legend" });
  const shade = () => { meant.replaceChildren(...keyOf(chosen.value)); shadeAll(); };
  const shadeAll = () => [...strip.children].forEach((one, nth) => { one.className = `token ${shadeOf(entries[nth], chosen.value)}${nth === current ? " current" : ""}`; });
  const more = h("button", { type: "button", onclick: async () => {
    more.disabled = true;
    add(await load(entries.length));
  } });
  const add = (part) => {
    entries.push(...part.entries);
    strip.append(...part.entries.map((entry) => h("span", {}, textOf(entry))));
    shade();
    more.textContent = `more: ${part.all - entries.length} are left`;
    more.disabled = false;
    more.hidden = entries.length >= part.all;
  };
  add(found);
  return [...summary, shades.length ? h("p", { class: "facts" }, h("label", {}, "shade by ", chosen), meant) : null, readout, strip, more].filter(Boolean);
}

function textOf(entry) {
  const text = entry.text || `[${entry.id}]`;
  return entry.times > 1 ? `${text} × ${entry.times}` : text;
}

function said(entry, missing) {
  const parts = SHADES.filter((name) => !(name in missing)).map((name) => `${name} ${number(entry[KEYS[name]])}`);
  return [`token ${entry.at}`, `id ${entry.id}`, JSON.stringify(entry.text ?? ""), entry.sampled ? "sampled" : "not sampled", ...(entry.sampled ? parts : [])].join(", ");
}

// What the shades of a number mean.
function keyOf(name) {
  const bounds = { "log-probability": [LIMITS, "under"], entropy: [UNSURE, "over"] }[name];
  const keys = bounds ? bounds[0].map((limit, at) => [`p${at + 1}`, `${bounds[1]} ${limit} nats`])
    : name === "advantage" ? [["up", "above 0"], ["down", "below 0"]]
      : Array.from({ length: VERSIONS }, (_, at) => [`v${at}`, at === VERSIONS - 1 ? `${at}, and so on` : String(at)]);
  return keys.map(([shade, text]) => h("span", { class: `token ${shade}` }, text));
}

function shadeOf(entry, name) {
  if (!entry.sampled) return "dim";
  const value = entry[KEYS[name]];
  if (value === null || value === undefined) return "";
  if (name === "log-probability") return `p${LIMITS.filter((limit) => value < limit).length}`;
  if (name === "entropy") return `p${UNSURE.filter((limit) => value > limit).length}`;
  if (name === "advantage") return value > 0 ? "up" : value < 0 ? "down" : "";
  return `v${value % VERSIONS}`;
}
