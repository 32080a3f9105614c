// The list of claims, its filters, the keyboard, and the beginning of it all.
const rows = [];
function buildList() {
  const entries = data.claims.map((claim, number) => ({ claim, number, place: finalOrder.has(claim.sentence) ? finalOrder.get(claim.sentence) : 1e9 }));
  data.dropped.forEach(([sentence, text, why, reason]) => entries.push({ dropped: { text, why, reason }, place: finalOrder.has(sentence) ? finalOrder.get(sentence) : 1e9 }));
  entries.sort((a, b) => a.place - b.place || (a.number || 0) - (b.number || 0));
  for (const entry of entries) {
    let item;
    if (entry.dropped) {
      item = el("li", { class: "dropped" }, entry.dropped.text, el("div", { class: "under" }, el("span", { class: "badge" }, `not checked: ${entry.dropped.why}`), entry.dropped.reason));
    } else {
      const claim = entry.claim;
      const where = claim.origin ? (claim.origin.open ? "origin open" : `entered at stage ${claim.origin.stages.join(", ")}`) : "";
      entry.button = el("button", { type: "button", onclick: () => choose(entry.number, true) }, claim.text,
        el("span", { class: "under" }, badge(verdictOf(claim)), where, claim.skipped.length ? `gap at stage ${claim.skipped.join(", ")}` : ""));
      item = el("li", {}, entry.button);
    }
    entry.item = item;
    rows.push(entry);
  }
  at("claims").replaceChildren(...rows.map((entry) => entry.item));
}
function fill(select, options) {
  at(select).replaceChildren(...options.map(([value, word]) => el("option", { value }, word)));
  at(select).addEventListener("change", filter);
}
const counts = { supported: 0, unsupported: 0, inconclusive: 0, none: 0, dropped: data.dropped.length };
data.claims.forEach((claim) => { counts[verdictOf(claim)] += 1; });
function buildFilters() {
  const words = [["supported", "supported"], ["unsupported", "unsupported"], ["inconclusive", "inconclusive"], ["none", "no verdict"], ["dropped", "not checked"]].filter(([name]) => counts[name]);
  fill("by-verdict", [["", "all"], ...words]);
  const entered = new Set(data.claims.flatMap((claim) => (claim.origin && !claim.origin.open ? claim.origin.stages : [])));
  fill("by-stage", [["", "any stage"], ...[...entered].sort((a, b) => a - b).map((stage) => [String(stage), `stage ${stage}`]), ...(data.claims.some((claim) => claim.origin && claim.origin.open) ? [["open", "open"]] : [])]);
  const stops = [...new Set(data.claims.map((claim) => claim.stop).filter(Boolean))];
  fill("by-stop", [["", "anyhow"], ...stops.map((stop) => [stop, { roots: "at the sources", "no-candidates": "nothing left", q: "after q steps" }[stop]])]);
  at("find").addEventListener("input", filter);
  at("tally").replaceChildren(...words.map(([name, word]) => el("button", { type: "button", class: `badge ${name}`, "aria-pressed": "false", "data-verdict": name, onclick: () => {
    at("by-verdict").value = at("by-verdict").value === name ? "" : name;
    filter();
  } }, el("b", {}, counts[name].toLocaleString("en")), `${SYMBOL[name] || ""} ${word}`)));
}
function filter() {
  const verdict = at("by-verdict").value, stage = at("by-stage").value, stop = at("by-stop").value;
  const wanted = at("find").value.trim().toLowerCase();
  let left = 0;
  for (const entry of rows) {
    const claim = entry.claim, text = (claim || entry.dropped).text.toLowerCase();
    const origin = claim && claim.origin;
    const fits = Boolean(
      (!verdict || verdict === (claim ? verdictOf(claim) : "dropped"))
      && (!stage || (origin && (stage === "open" ? origin.open : !origin.open && origin.stages.includes(Number(stage)))))
      && (!stop || (claim && claim.stop === stop)) && (!wanted || text.includes(wanted)));
    entry.item.hidden = !fits;
    left += fits;
  }
  at("shown").textContent = `${left.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown; arrow keys move, Escape shows the whole process`;
  at("tally").querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.getAttribute("data-verdict") === verdict)));
}
function choose(number, byUser) {
  state.claim = number;
  state.wave = 0;
  state.node = -1;
  state.path = 0;
  const claim = current();
  if (byUser) history.replaceState(null, "", claim ? `#${encodeURIComponent(claim.id)}` : location.pathname + location.search);
  show();
  const entry = rows.find((each) => each.number === number && each.button);
  if (entry) entry.button.scrollIntoView({ block: "nearest" });
}
function show() {
  const claim = current(), found = claim ? marks(claim, state.wave) : null;
  rows.forEach((entry) => { if (entry.button) entry.button.setAttribute("aria-current", String(entry.number === state.claim)); });
  at("graph-title").textContent = claim ? "Trail of the claim" : "Process";
  at("wave-label").hidden = !claim || claim.steps.length < 2;
  if (claim) {
    at("wave").max = claim.steps.length;
    at("wave").value = state.wave;
    at("wave-text").textContent = state.wave ? `${state.wave} of ${claim.steps.length}` : `all ${claim.steps.length}`;
  }
  lightMap(found);
  drawGraph(found);
  const legend = found ? [["evidence", "says something on the claim"], ["origin", "! the claim enters here"], ["read", "read, no evidence"], ["", "not read"]] : [["", "text"], ["origin", "an unsupported claim enters here"], ["final", "final text"]];
  at("legend").replaceChildren(...legend.map(([name, word]) => el("span", {}, el("i", { class: name }), word)), ...(found ? [] : [el("span", {}, data.claims.length ? "Choose a claim to see its trail." : "")]));
  showClaim(found);
  showNode();
}
at("wave").addEventListener("input", (event) => {
  state.wave = Number(event.target.value);
  show();
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && !typing) { if (state.node >= 0) chooseNode(-1); else choose(-1, true); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); at("find").focus(); return; }
  const inList = at("claims").contains(event.target), forward = event.key === "j" || (inList && event.key === "ArrowDown");
  if (!forward && event.key !== "k" && !(inList && event.key === "ArrowUp")) return;
  event.preventDefault();
  const open = rows.filter((entry) => entry.button && !entry.item.hidden);
  const place = open.findIndex((entry) => entry.number === state.claim);
  const next = open[Math.min(Math.max(place + (forward ? 1 : place < 0 ? 0 : -1), 0), open.length - 1)];
  if (next) { next.button.focus(); choose(next.number, true); }
});
at("download").addEventListener("click", () => {
  const link = el("a", { href: URL.createObjectURL(new Blob([JSON.stringify(data)], { type: "application/json" })), download: "trail-page.json" });
  link.click();
  URL.revokeObjectURL(link.href);
});
function fromAddress() {
  const id = decodeURIComponent(location.hash.slice(1));
  choose(data.claims.findIndex((claim) => claim.id === id), false);
}
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => { drawMap(); show(); }, 120); });
addEventListener("hashchange", fromAddress);
buildFilters();
buildList();
filter();
drawMap();
fromAddress();
