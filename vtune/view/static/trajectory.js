// One trajectory as a conversation.

import { code, h, number } from "./dom.js";
import { LABELS, address } from "./list.js";
import { figure } from "./picture.js";
import { tokenStrip } from "./tokens.js";

const TALLEST = 320; // pixels of a picture next to the regions shown of it

export function trajectoryPage(place, query, one, around, say, tokens) {
  const links = [["previous", around.before, "k"], ["next", around.after, "j"]].map(([name, key, letter]) =>
    key ? h("a", { href: address(place.number, query, key, around.first), rel: name === "next" ? "next" : "prev" }, `${name} (${letter})`) : null);
  const accuracy = one.reward?.parts?.accuracy ?? null;
  const partial = accuracy !== null && accuracy !== 0 && accuracy !== 1;
  const verdict = one.right === true ? "right" : one.right === false ? "wrong" : one.reward ? "unscored" : "";
  return [h("h1", {}, one.key, " ", verdict && h("span", { class: `badge ${verdict}` }, partial ? `accuracy ${number(accuracy)}` : verdict)),
    h("p", { class: "facts" }, ...links, ...facts(one)), ...asked(one),
    h("section", { "aria-label": "Pictures", class: "pictures" }, ...one.pictures.map((_, index) => figure(place, one, index))),
    h("section", { "aria-label": "Conversation" }, ...one.turns.map((turn) => turnOf(place, one, turn))),
    earned(one), one.rollout === undefined ? null : tokenStrip(tokens), say ? labels(one, say) : null, siblings(place, query, one, around.first)];
}

function facts(one) {
  const names = ["source", "sample", "step", "group", "rollout", "sampled", "stop", "answer"];
  const film = h("span", {}, h("a", { href: `#/film/${encodeURIComponent(one.sample)}` }, "this sample over steps and models"));
  return [...names.filter((name) => one[name] !== null && one[name] !== undefined)
    .map((name) => h("span", {}, h("b", {}, name), " ", String(one[name]).slice(0, 200))), film];
}

function asked(one) {
  if (!one.asked) return one.why_not_asked ? [h("p", { class: "quiet" }, `No ground truth and no boxes: ${one.why_not_asked}`)] : [];
  const choices = one.asked.choices.length ? [h("dt", {}, "choices"), h("dd", {}, one.asked.choices.join("; "))] : [];
  return [h("dl", {}, h("dt", {}, "ground truth"), h("dd", {}, one.asked.ground_truth), ...choices,
    h("dt", {}, "verifier"), h("dd", {}, one.asked.verifier))];
}

function turnOf(place, one, turn) {
  const parts = turn.parts.map((part) => {
    if (part.kind === "picture") return h("p", { class: "mark" }, `[picture ${part.picture}]`);
    if (part.kind === "code") return code(part.text);
    return h("div", { class: `text ${part.kind}` }, part.text);
  });
  return h("article", { class: `turn ${turn.by}` }, h("h2", {}, turn.role === "system" ? "system" : turn.by), ...parts,
    ...turn.calls.map((k) => callOf(place, one, k)));
}

function callOf(place, one, k) {
  const call = one.calls[k];
  const scored = [["score", call.score], ["advantage", one.advantage], ["after credit", call.advantage]]
    .filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => `${name} ${number(value)}`);
  const pairs = call.crops.filter((crop) => crop.shown !== null).map((crop) =>
    h("div", { class: "pair" }, figure(place, one, crop.picture, 640, TALLEST), figure(place, one, crop.shown, 640, TALLEST)));
  return h("section", { class: "call", "aria-label": `call ${k}` },
    h("h3", {}, `call ${k}: ${call.tool}, ${call.status}, ${number(call.seconds)} s`),
    call.code === null ? h("div", { class: "text" }, call.arguments) : null,
    call.error ? h("div", { class: "text error" }, call.error) : null,
    call.output ? h("div", { class: "text" }, call.output) : null,
    call.flags.length ? h("p", { class: "flags" }, `red flags: ${call.flags.join(", ")}`) : null,
    scored.length ? h("p", {}, scored.join(", ")) : null, ...pairs);
}

function earned(one) {
  if (!one.reward) return null;
  const weights = one.reward.weights;
  const known = [["total", one.reward.total], ...Object.entries(one.reward.parts), ...Object.entries(one.reward.facts), ["advantage", one.advantage]];
  const rows = known.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name),
    h("td", { class: "number" }, number(value)), weights ? h("td", { class: "number" }, name in weights ? `× ${number(weights[name])} = ${number(weights[name] * value)}` : "") : null));
  return h("section", {}, h("h2", {}, "reward"), h("table", {}, h("tbody", {}, ...rows)), h("p", {}, one.reward.why));
}

function labels(one, say) {
  const note = h("input", { type: "text", maxlength: 2000, "aria-label": "Note", placeholder: "note", value: one.label?.note ?? "" });
  const buttons = [...LABELS, null].map((label) => h("button", { type: "button", "aria-pressed": label !== null && one.label?.label === label ? "true" : "false",
    onclick: () => say(label, note.value) }, label ?? "take back"));
  return h("section", { class: "labels" }, h("h2", {}, "label"), ...buttons, note);
}

function siblings(place, query, one, first) {
  if (one.siblings.length < 2) return null;
  const items = one.siblings.map((row) => h("li", {}, h("a", { href: address(place.number, query, row.key, first),
    "aria-current": row.key === one.key ? "page" : null }, `rollout ${row.rollout}`), ` ${row.right === null ? "unscored" : row.right ? "right" : "wrong"}, reward ${number(row.reward)}`));
  const key = one.key.split("/").map(encodeURIComponent).join("/");
  return h("section", {}, h("h2", {}, "group"), one.rollouts > items.length ? h("p", { class: "quiet" }, `${items.length} of ${one.rollouts} rollouts are in this file`) : null, h("ul", {}, ...items), h("a", { href: `#/group/${place.number}/${key}` }, "side by side"));
}
