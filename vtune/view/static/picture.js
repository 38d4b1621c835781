// Pictures with the regions that calls showed, the evidence, and the boxes of the ground truth and the answer.

import { h, s } from "./dom.js";
import { picture as addressOf } from "./source.js";

function boxesOn(one, index) {
  const shown = one.calls.flatMap((call, k) => call.crops.filter((crop) => crop.picture === index)
    .map((crop) => ({ box: crop.box, kind: "crop", name: `call ${k}`, title: `call ${k} showed this${crop.look ? `, ${crop.look}` : ""}` })));
  const evidence = (one.asked?.evidence ?? []).filter((item) => item.picture === index)
    .map((item) => ({ box: item.box, kind: "evidence", name: item.label || "evidence", title: `evidence: ${item.label}` }));
  return [...shown, ...evidence, ...(index === 0 ? asked(one.boxes) : [])];
}

function asked({ truth, answer }) {
  const named = (kind, { label }) => (label ? `${kind}: ${label}` : kind);
  const wanted = truth.map((item) => ({ box: item.box, kind: "truth", name: item.label || "truth", title: named("ground truth", item) }));
  const given = answer.map((item) => ({ box: item.box, kind: "answer", name: item.label || "answer", title: `${named("answer", item)}, ${met(item)}` }));
  return [...wanted, ...given];
}

function met({ iou, meets }) {
  const what = meets || "the ground truth";
  if (iou === null) return meets === null ? "outside every box" : `in ${what}`;
  return meets === null ? "overlaps no box" : `IoU ${iou.toFixed(2)} with ${what}`;
}

function shape([x0, y0, x1, y1], unit, title) {
  const named = s("title", {}, title);
  // A point has no sides.
  if (x0 === x1 && y0 === y1) return s("circle", { cx: x0, cy: y0, r: unit }, named);
  return s("rect", { x: x0, y: y0, width: Math.max(x1 - x0, 0), height: Math.max(y1 - y0, 0) }, named);
}

export function figure(place, one, index, widest = 640, tallest = Infinity) {
  const picture = one.pictures[index];
  const name = `picture ${index} (${picture.origin})`;
  const address = picture.problem ? null : addressOf(place.number, index, one.key);
  if (!address) return h("figure", { class: "broken" }, h("figcaption", {}, `${name} cannot be shown: ${picture.problem || "it is not in this file"}`));
  const { width, height } = picture;
  const boxes = boxesOn(one, index);
  const unit = Math.max(width, height) / 100;
  const above = ["crop", "answer"];
  const drawn = boxes.map(({ box, box: [x0, y0, , y1], kind, name: label, title }) => s("g", { class: kind }, shape(box, unit, title),
    s("text", { x: x0, y: above.includes(kind) ? Math.max(y0 - unit, 4 * unit) : Math.min(y1 + 4 * unit, height - unit), "font-size": 4 * unit }, label)));
  const said = boxes.map((box) => `${box.title} at ${box.box.map((side) => Math.round(side)).join(", ")}`).join("; ");
  return h("figure", {}, s("svg", { viewBox: `0 0 ${width} ${height}`, width: Math.min(width * Math.max(1, 160 / width), widest, (tallest * width) / height), role: "img",
    "aria-label": said ? `${name}: ${said}` : name },
    s("image", { href: address, width, height }), ...drawn),
    h("figcaption", {}, `${name}, ${width} × ${height} px`));
}
