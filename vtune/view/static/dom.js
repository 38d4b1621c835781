// Elements made from text: nothing in a trajectory is ever interpreted as markup, style or an address.

const SVG = "http://www.w3.org/2000/svg";
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}\ud800-\udfff]/gu;

// Control characters are escaped, as in the terminal.
export function clean(text) {
  return String(text).replace(UNSAFE, (one) => {
    const code = one.codePointAt(0).toString(16);
    return one.length > 1 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : clean(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) {
      element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
    }
  }
  return element;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
}

export function table(heads, rows) {
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, ...heads.map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, ...rows)));
}

const WORDS = "and as assert break class continue def elif else except False finally for from if import in is None "
  + "not or pass return True try while with yield";
const TOKEN = new RegExp(`(#[^\\n]*)|("(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*')|\\b(${WORDS.split(" ").join("|")})\\b`
  + "|\\b(\\d+(?:\\.\\d+)?)\\b", "g");

// Python with comments, strings, keywords and numbers highlighted.
export function code(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    parts.push(text.slice(at, found.index));
    const kind = ["comment", "string", "word", "number"].find((_, index) => found[index + 1] !== undefined);
    parts.push(h("span", { class: `py-${kind}` }, found[0]));
    at = found.index + found[0].length;
  }
  return h("pre", { class: "code", tabindex: "0" }, h("code", {}, ...parts, text.slice(at)));
}
