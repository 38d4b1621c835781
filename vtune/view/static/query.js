// Queries over the trajectories in a file: the language of `vtune show --where`, with the same errors as vtune/view/query.py.

const YES_NO = ["right", "faithful"];
const NUMBERS = ["step", "group", "rollout", "reward", "accuracy", "format", "tool", "consistency", "iou", "advantage", "calls", "turns", "pictures", "tokens"];
const TEXTS = ["key", "source", "sample", "stop", "answer", "label"];
const UNKNOWN = "none";
const CLOSED = {
  status: ["ok", "error", "blocked", "timeout", "killed", "limit", "infra"],
  stop: ["answer", "length", "turns", "context", "error"],
  label: ["right", "wrong", "judge erred", "box wrong"],
};
const FLAGS = ["whole_image", "repeated_crop", "repeated_search", "scratchpad", "sandbox_error", "bad_call", "faked", "illegible", "everything"];
const MOST = 1000;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const WORDS = { flag: "flags", status: "statuses", call: "outcomes" };
const TOKEN = /\s*(-?)(?:([a-z]+)(<=|>=|:|<|>|=))?("[^"]*"|[^\s"]+)/y;

export function query(text) {
  if (text.length > MOST) throw new Error(`a query has at most ${MOST} characters`);
  const found = { terms: [], sort: "", descending: false };
  TOKEN.lastIndex = 0;
  while (text.slice(TOKEN.lastIndex).trim()) {
    const match = TOKEN.exec(text);
    if (!match) throw new Error("a quote is not closed");
    const [, minus, name = "", written = ":", value] = match;
    const operator = written === "=" ? ":" : written;
    const bare = value.replaceAll('"', "");
    if (name === "sort") {
      found.sort = sortKey(bare.replace(/^-+/, ""));
      found.descending = bare.startsWith("-");
      continue;
    }
    if (name && ![...YES_NO, ...NUMBERS, ...TEXTS, ...Object.keys(WORDS)].includes(name)) throw new Error(`there is no fact \`${name}\``);
    const quoted = value.startsWith('"') && TEXTS.includes(name) && !(name in CLOSED);
    const values = !name || quoted ? [bare] : bare.split(",");
    check(name, operator, values);
    found.terms.push({ name, operator, values, negated: minus === "-", quoted });
  }
  return found;
}

function sortKey(name) {
  const sorted = [...TEXTS.filter((one) => one !== "label"), ...YES_NO, ...NUMBERS];
  if (!sorted.includes(name)) throw new Error(`cannot sort by \`${name}\``);
  return name;
}

function check(name, operator, values) {
  for (const value of values) {
    if (YES_NO.includes(name) && !["yes", "no", UNKNOWN].includes(value)) throw new Error(`\`${name}\` is yes, no or ${UNKNOWN}, not '${value}'`);
    if (NUMBERS.includes(name) && value !== UNKNOWN && !NUMBER.test(value)) throw new Error(`\`${name}\` is a number, not '${value}'`);
    if (name in CLOSED && ![...CLOSED[name], UNKNOWN].includes(value)) throw new Error(`\`${name}\` is never '${value}'`);
    if (operator !== ":" && (!NUMBERS.includes(name) || value === UNKNOWN)) throw new Error(`\`${name}\` cannot be compared by ${operator}`);
  }
}

// A flag that neither vtune nor any trajectory in the list knows would match nothing.
function checkFlags(rows, asked) {
  for (const value of asked.terms.filter((term) => term.name === "flag").flatMap((term) => term.values)) {
    if (![...FLAGS, UNKNOWN].includes(value) && !rows.some((row) => row.flags.split(" ").includes(value))) throw new Error(`\`flag\` is never '${value}'`);
  }
}

export function select(rows, asked) {
  checkFlags(rows, asked);
  const found = rows.filter((row) => asked.terms.every((term) => term.values.some((value) => holds(row, term, value)) !== term.negated));
  if (!asked.sort) return found;
  const way = asked.descending ? -1 : 1;
  const known = found.filter((row) => row[asked.sort] !== null && row[asked.sort] !== undefined);
  const order = (a, b) => (a[asked.sort] < b[asked.sort] ? -way : a[asked.sort] > b[asked.sort] ? way : 0);
  return [...known.sort(order), ...found.filter((row) => !known.includes(row))];
}

function word(name, value) {
  return name === "call" && !value.includes(":") ? ` ${value}:` : ` ${value} `;
}

function holds(row, { name, operator, quoted }, value) {
  if (!name) return row.text.includes(value.toLowerCase());
  if (name in WORDS) return value === UNKNOWN ? row[WORDS[name]] === "" : row[WORDS[name]].includes(word(name, value));
  const fact = row[name] ?? null;
  if (value === UNKNOWN && !quoted) return fact === null;
  if (fact === null) return false;
  if (YES_NO.includes(name)) return fact === (value === "yes");
  if (!NUMBERS.includes(name)) return fact === value;
  const [a, b] = [Math.fround(fact), Math.fround(Number(value))];
  return { ":": a === b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b }[operator];
}
