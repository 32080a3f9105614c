// The process drawn: a map of all nodes of a large one, a graph of boxes of a small one or of one claim's trail.
// ---- the map: every node of a large process is a cell, stage beside stage
const cells = [];
function drawMap() {
  if (small) { at("map").hidden = true; return; }
  const width = Math.max(at("map").clientWidth, 320), height = 150, gap = 26, head = 20;
  // Titles need 46 px a stage: where they alone are wider than the page, it scrolls, and cells need not shrink to fit.
  const room = Math.max(width, 46 * stages.length + gap * (stages.length - 1));
  let size = 16, columns = [];
  for (; size >= 2; size -= 1) {
    const rows = Math.max(Math.floor(height / size), 1);
    columns = stages.map((stage) => Math.ceil(byStage.get(stage).length / rows));
    const used = columns.reduce((sum, count) => sum + Math.max(count * size, 46), 0) + gap * (stages.length - 1);
    if (used <= room) break;
  }
  size = Math.max(size, 2);
  const rows = Math.max(Math.floor(height / size), 1);
  const picture = draw("svg", { role: "img", class: size <= 5 ? "tiny" : "" });
  picture.setAttribute("aria-label", `All ${nodes.length} texts of the process by stage; the trail of the selected claim is lit`);
  let left = 0;
  stages.forEach((stage, place) => {
    const title = draw("text", { x: left, y: 13, class: "stage", "data-stage": stage });
    picture.append(title);
    byStage.get(stage).forEach((node, rank) => {
      const cell = draw("rect", {
        x: left + Math.floor(rank / rows) * size, y: head + (rank % rows) * size,
        width: Math.max(size - 1.5, 1), height: Math.max(size - 1.5, 1), class: "cell", "data-node": node.number,
      });
      cells[node.number] = cell;
      picture.append(cell);
    });
    left += Math.max(columns[place] * size, 46) + gap;
  });
  picture.setAttribute("width", left - gap);
  picture.setAttribute("height", head + height);
  picture.addEventListener("click", (event) => {
    const number = event.target.getAttribute("data-node");
    if (number !== null) chooseNode(Number(number));
  });
  at("map").replaceChildren(picture);
}
function lightMap(found) {
  if (small) return;
  cells.forEach((cell, number) => cell.setAttribute("class", `cell ${classOf(number, found)}`));
  const entered = enteredStages();
  at("map").querySelectorAll("[data-stage]").forEach((title) => {
    const stage = Number(title.getAttribute("data-stage")), count = entered.get(stage);
    title.setAttribute("class", entered.has(stage) ? "stage entered" : "stage");
    title.textContent = `${stage} (${byStage.get(stage).length.toLocaleString("en")})${count ? `  !${count}` : ""}`;
  });
}
function enteredStages() {
  const claim = current();
  if (!claim) return enteredStage;
  return new Map(claim.origin && !claim.origin.open ? claim.origin.stages.map((stage) => [stage, 0]) : []);
}
const enteredNote = (count) => (count ? `! ${count.toLocaleString("en")} entered here` : "! entered here");

// ---- the graph: boxes with names; of a large process only the trail of the selected claim
const MOST_BOXES = 8;
const BADGE = 9; // half its height, and how far it stands out from its box
function shownNodes(found) {
  if (small) return { shown: new Set(nodes.map((node) => node.number)), rest: new Map() };
  const claim = current(), shown = new Set([data.terminal]), rest = new Map();
  const onPath = new Set([...(claim.paths[state.path] || []), ...(claim.origin ? claim.origin.nodes : [])]);
  const weight = (number) => (onPath.has(number) ? 0 : 1);
  for (const stage of stages) {
    const lit = byStage.get(stage).map((node) => node.number).filter((number) => found.evidence.has(number) || found.origin.has(number));
    lit.sort((a, b) => weight(a) - weight(b) || a - b);
    lit.slice(0, MOST_BOXES).forEach((number) => shown.add(number));
    const others = byStage.get(stage).filter((node) => found.read.has(node.number) && !found.evidence.has(node.number)).length;
    const lines = [];
    if (lit.length > MOST_BOXES) lines.push(`${lit.length - MOST_BOXES} more with evidence`);
    if (others) lines.push(`${others.toLocaleString("en")} read, no evidence`);
    if (lines.length) rest.set(stage, lines);
  }
  return { shown, rest };
}
function drawGraph(found) {
  const holder = at("graph");
  if (!small && !found) { holder.replaceChildren(); return; }
  const { shown, rest } = shownNodes(found);
  const used = stages.filter((stage) => rest.has(stage) || byStage.get(stage).some((node) => shown.has(node.number)));
  const width = Math.max(holder.clientWidth, 320), gap = 44, head = 34, row = 48, tall = 38;
  const wide = Math.max(Math.min((width - gap * (used.length - 1) - 3 - BADGE) / used.length, 190), 104);
  const columns = used.map((stage) => byStage.get(stage).filter((node) => shown.has(node.number)));
  const counts = used.map((stage, place) => columns[place].length + (rest.has(stage) ? 1 : 0));
  const height = head + Math.max(...counts) * row;
  const picture = draw("svg", { width: used.length * (wide + gap) - gap + 3 + BADGE, height: height + 4, role: "group", "aria-label": "Graph of the process" });
  const place = new Map(), boxes = [];
  const entered = enteredStages();
  used.forEach((stage, column) => {
    const x = 3 + column * (wide + gap), top = head + (height - head - counts[column] * row) / 2;
    const title = draw("text", { x, y: 14, class: entered.has(stage) ? "stage entered" : "stage" });
    title.append(clip(stageName(stage), Math.floor(wide / 6)));
    picture.append(title);
    if (entered.has(stage)) {
      const note = draw("text", { x, y: 28, class: "stage entered" });
      note.append(enteredNote(entered.get(stage)));
      picture.append(note);
    }
    columns[column].forEach((node, rank) => place.set(node.number, { x, y: top + rank * row }));
    if (rest.has(stage)) {
      const y = top + columns[column].length * row;
      const box = draw("g", { class: "box rest" }, draw("rect", { x, y, width: wide, height: tall, rx: 6 }));
      rest.get(stage).forEach((text, line) => {
        const words = draw("text", { x: x + 8, y: y + (rest.get(stage).length > 1 ? 16 + line * 14 : 23), class: "sub" });
        words.append(text);
        box.append(words);
      });
      boxes.push(box);
    }
  });
  const claim = current(), spread = new Set(spreadEdges(claim, found)), proven = new Set((claim ? claim.edges : []).map(String));
  for (const [source, output] of data.edges) {
    const from = place.get(source), to = place.get(output);
    if (!from || !to) continue;
    const held = found && (found.evidence.has(source) || found.origin.has(source)) && (output === data.terminal || found.evidence.has(output));
    const name = `${source},${output}`;
    const kind = spread.has(name) ? "edge spread" : held && (proven.size === 0 || proven.has(name)) ? "edge lit" : "edge";
    const x1 = from.x + wide, y1 = from.y + tall / 2, x2 = to.x, y2 = to.y + tall / 2, bend = Math.max((x2 - x1) / 2, 18);
    const line = draw("path", { class: kind, d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
    if (kind === "edge") picture.prepend(line); else picture.append(line);
  }
  for (const [number, { x, y }] of place) boxes.push(drawBox(nodes[number], x, y, wide, tall, found));
  picture.append(...boxes);
  holder.replaceChildren(picture);
}
function drawBox(node, x, y, wide, tall, found) {
  const letters = Math.floor((wide - 14) / 6.6);
  const lit = [...((found && found.evidence.get(node.number)) || new Map()).values()];
  const first = lit.length ? (lit.find((each) => each.cited) || lit[0]).text : (data.texts[node.number][0] || ["", ""])[1];
  const title = draw("title");
  title.append(`${node.id}\n${clip(first, 300)}`);
  const name = draw("text", { x: x + 8, y: y + 16 });
  name.append(clip(node.label, letters));
  const excerpt = draw("text", { x: x + 8, y: y + 30, class: "sub" });
  excerpt.append(clip(first, Math.floor((wide - 14) / 5.6)));
  const box = draw("g", { class: `box ${classOf(node.number, found)}`, tabindex: 0, role: "button", "aria-label": spoken(node, found) },
    title, draw("rect", { x, y, width: wide, height: tall, rx: 6 }), name, excerpt);
  const count = found ? (found.origin.has(node.number) ? "!" : "") : enteredAt.get(node.number);
  if (count) {
    const half = BADGE + 4 * (String(count).length - 1), middle = x + wide + BADGE - 1 - half;
    const mark = draw("text", { x: middle, y: y + 4, class: "mark-text", "text-anchor": "middle" });
    mark.append(count);
    box.append(draw("ellipse", { cx: middle, cy: y, rx: half, ry: BADGE, class: "mark" }), mark);
  }
  box.addEventListener("click", () => chooseNode(node.number));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); chooseNode(node.number); }
  });
  return box;
}
function spoken(node, found) {
  let role = "";
  if (found) {
    if (found.origin.has(node.number)) role = ", the claim enters here";
    else if (found.evidence.has(node.number)) role = ", has evidence";
    else if (found.read.has(node.number)) role = ", read without evidence";
  }
  return `${node.label}, stage ${node.stage}${role}`;
}

// How an unsupported claim went from where it entered to the final text: through texts that also say it.
function spreadPath(claim, found) {
  if (!claim || !claim.origin || claim.origin.open || !claim.origin.nodes.length) return [];
  const start = claim.origin.nodes[0];
  if (start === data.terminal) return [start];
  const before = new Map([[start, -1]]), waiting = [start];
  while (waiting.length) {
    const number = waiting.shift();
    if (number === data.terminal) {
      const path = [];
      for (let each = number; each !== -1; each = before.get(each)) path.unshift(each);
      return path;
    }
    for (const output of outputs[number]) {
      if (!before.has(output) && (output === data.terminal || found.evidence.has(output))) { before.set(output, number); waiting.push(output); }
    }
  }
  return [start];
}
function spreadEdges(claim, found) {
  const path = claim ? spreadPath(claim, found) : [];
  return path.slice(1).map((number, place) => `${path[place]},${number}`);
}
