// What the page holds: the data, elements made from text, and what a claim makes of each node.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SYMBOL = { supported: "\u2713", unsupported: "\u2717", inconclusive: "?", none: "\u2013" };
const STOPPED = {
  roots: "the walk reached the sources",
  "no-candidates": "nothing was left to search",
  q: "too many steps in a row without support",
};

// Everything that comes from the process enters the page through textContent or setAttribute, never as markup.
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
const clip = (text, most) => (text.length > most ? text.slice(0, Math.max(most - 1, 1)) + "\u2026" : text);
const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const probability = (value) => (value === null ? "" : value.toFixed(2));
const verdictOf = (claim) => claim.verdict || "none";
const wordOf = (verdict) => (verdict === "none" ? "no verdict" : verdict);
const badge = (verdict) => el("span", { class: `badge ${verdict}` }, `${SYMBOL[verdict]} ${wordOf(verdict)}`);

const nodes = data.nodes.map(([id, stage, root, label], number) => ({ id, stage, root: !!root, label: label || id, number }));
const sources = nodes.map(() => []);
const outputs = nodes.map(() => []);
for (const [source, output] of data.edges) { sources[output].push(source); outputs[source].push(output); }
const stages = [...new Set(nodes.map((node) => node.stage))].sort((a, b) => a - b);
const byStage = new Map(stages.map((stage) => [stage, nodes.filter((node) => node.stage === stage)]));
const small = nodes.length <= 60 && [...byStage.values()].every((members) => members.length <= 20);
const finalOrder = new Map(data.final.map(([id], place) => [id, place]));
const finalText = new Map(data.final);
const state = { claim: -1, wave: 0, node: -1, path: 0 };

function stageName(stage) {
  const members = byStage.get(stage);
  if (members.some((node) => node.number === data.terminal)) return `Stage ${stage}: final text`;
  return members.every((node) => node.root) ? `Stage ${stage}: sources` : `Stage ${stage}`;
}
const expanded = (place) => data.candidates[place].flatMap(([first, last]) => {
  const all = [];
  for (let number = first; number <= last; number += 1) all.push(number);
  return all;
});

// What the selected claim makes of each node: read, evidence, origin; and the sentences found there.
function marks(claim, wave) {
  const read = new Set(), evidence = new Map(), origin = new Set(claim.origin && !claim.origin.open ? claim.origin.nodes : []);
  claim.steps.forEach((step, place) => {
    if (wave && place + 1 !== wave) return;
    expanded(step.read).forEach((number) => read.add(number));
    for (const [number, sentences] of step.evidence) {
      const known = evidence.get(number) || new Map();
      for (const [id, text] of sentences) known.set(id, { text, cited: step.cited.includes(id) || (known.get(id) || {}).cited });
      evidence.set(number, known);
    }
  });
  return { read, evidence, origin };
}
const current = () => (state.claim < 0 ? null : data.claims[state.claim]);
// Without a selected claim: at which nodes and stages unsupported claims entered, and how many.
const enteredAt = new Map(), enteredStage = new Map();
for (const claim of data.claims) {
  if (!claim.origin || claim.origin.open) continue;
  claim.origin.nodes.forEach((number) => enteredAt.set(number, (enteredAt.get(number) || 0) + 1));
  claim.origin.stages.forEach((stage) => enteredStage.set(stage, (enteredStage.get(stage) || 0) + 1));
}
function classOf(number, found) {
  const names = [];
  if (!found && enteredAt.has(number)) names.push("origin");
  if (found) {
    if (found.origin.has(number)) names.push("origin");
    else if (found.evidence.has(number)) names.push("evidence");
    else if (found.read.has(number)) names.push("read");
    else if (number !== data.terminal) names.push("dim");
  }
  if (number === data.terminal) names.push("final");
  if (number === state.node) names.push("chosen");
  return names.join(" ");
}
