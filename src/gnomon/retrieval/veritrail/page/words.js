// The selected claim, its path and its walk in words; the text of a node.
const nodeButton = (number) => el("button", { type: "button", class: "node", onclick: () => chooseNode(number) }, nodes[number].label);
function sentenceList(found, number, origin) {
  const said = number === data.terminal ? finalSentences() : [...(found.evidence.get(number) || new Map())].map(([id, { text, cited }]) => ({ id, text, cited }));
  const some = said.some(({ cited }) => cited) && said.some(({ cited }) => !cited);
  return el("ul", { class: "said" }, ...said.map(({ text, cited }) =>
    el("li", { class: `${cited ? "cited" : ""} ${origin ? "at-origin" : ""}` }, text, some && cited ? el("small", {}, "  (the verdict rests on it)") : null)));
}
function finalSentences() {
  const claim = current(), text = finalText.get(claim.sentence);
  return [{ id: claim.sentence, text: text || claim.text, cited: false }];
}
function outcome(claim) {
  const box = el("div", { class: `outcome ${verdictOf(claim)}` });
  if (claim.verdict === null) {
    box.append(`No verdict: ${claim.problem || claim.status}.`);
  } else if (claim.verdict === "unsupported" && claim.origin) {
    if (claim.origin.open) {
      box.append(`No single step can be named. Candidates: stage ${claim.origin.stages.join(", ")}.`);
    } else if (claim.origin.nodes.includes(data.terminal)) {
      box.append(`Entered at stage ${claim.origin.stages.join(", ")}, in the final text: nothing it was made from supports the claim.`);
    } else {
      box.append(`Entered at stage ${claim.origin.stages.join(", ")}, in `);
      claim.origin.nodes.slice(0, 6).forEach((number, place) => box.append(place ? ", " : "", nodeButton(number)));
      if (claim.origin.nodes.length > 6) box.append(` and ${claim.origin.nodes.length - 6} more`);
      box.append(": stated there, and not supported by what it was made from.");
    }
  } else if (claim.verdict === "supported") {
    box.append(claim.paths.length ? "Supported, with a complete path from a source to the final text." : "Supported, but no complete path from a source to the final text was found.");
    if (claim.skipped.length) box.append(` Stage ${claim.skipped.join(", ")} on the way does not state it.`);
  } else {
    box.append("Inconclusive: the evidence conflicts or can be read in several ways.");
  }
  return box;
}
function pathSection(claim, found) {
  const spread = spreadPath(claim, found);
  const path = claim.paths.length ? claim.paths[state.path] : spread;
  if (!path.length) return null;
  const part = el("div", {}, el("h3", {}, claim.paths.length ? "Path, sentence to sentence" : "How it reached the final text"));
  if (claim.paths.length > 1) {
    const select = el("select", { onchange: (event) => { state.path = Number(event.target.value); show(); } },
      ...claim.paths.map((each, place) => el("option", { value: place, selected: place === state.path }, `${place + 1}: ${clip(each.map((number) => nodes[number].label).join(" \u2192 "), 90)}`)));
    part.append(el("p", { class: "paths" }, el("label", {}, `${many(claim.paths.length + claim.morePaths, "path")}${claim.morePaths ? `, ${claim.morePaths} not listed` : ""}`, select)));
  }
  const list = el("ol", { class: "chain" });
  for (const number of path) {
    const origin = found.origin.has(number);
    list.append(el("li", { class: origin ? "unsupported" : claim.verdict === "unsupported" ? "" : "supported" },
      el("div", {}, nodeButton(number), el("span", { class: "line" }, `  ${stageName(nodes[number].stage)}`), origin ? el("span", { class: "tag" }, "! the claim enters here") : null),
      sentenceList(found, number, origin)));
  }
  part.append(list);
  return part;
}
function stepCard(step, place, found) {
  const read = expanded(step.read);
  const stagesRead = [...new Set(read.map((number) => nodes[number].stage))].sort((a, b) => a - b);
  const card = el("li", { class: `${step.verdict} ${state.wave === place + 1 ? "here" : ""}` },
    el("div", {}, el("b", {}, `Step ${place + 1}: `), badge(step.verdict), el("span", { class: "line" },
      `  probability of support ${probability(step.score)} \u00b7 read ${many(read.length, "text")} of stage ${stagesRead.join(", ")}, ${many(step.usage[4], "sentence")}; evidence in ${step.evidence.length}`)));
  step.evidence.slice(0, 12).forEach(([number, sentences, summary]) => {
    card.append(el("div", { class: "evidence-of" }, nodeButton(number), el("span", { class: "line" }, `  stage ${nodes[number].stage}`),
      found.origin.has(number) ? el("span", { class: "tag" }, "! the claim enters here") : null,
      el("ul", { class: "said" }, ...sentences.map(([id, text]) => el("li", { class: step.cited.includes(id) ? "cited" : "" }, text))),
      summary ? el("p", { class: "summary" }, `Summary: ${summary}`) : null));
  });
  if (step.evidence.length > 12) card.append(el("p", { class: "line" }, `and ${step.evidence.length - 12} more texts with evidence`));
  if (!step.evidence.length) card.append(el("p", { class: "line" }, "No sentence bears on the claim."));
  if (step.reasoning) card.append(el("p", { class: "reasoning" }, `Judge: ${step.reasoning}`));
  if (step.truncated) card.append(el("p", { class: "tag" }, "Evidence was dropped to fit the judge's input."));
  if (step.invented) card.append(el("p", { class: "tag" }, `The judge named ${many(step.invented, "sentence")} it was not shown; they were discarded.`));
  return card;
}
function showClaim(found) {
  const claim = current(), section = at("claim");
  section.hidden = !claim;
  if (!claim) return;
  const [calls, cached, tokensIn, tokensOut, sentences] = claim.usage;
  const cost = [many(sentences, "sentence") + " read"];
  if (calls || cached) cost.push(`${many(calls, "call")}, ${cached} from the cache, ${tokensIn} tokens in, ${tokensOut} out`);
  const last = claim.steps[claim.steps.length - 1];
  const whole = marks(claim, 0);
  section.replaceChildren(
    el("div", {}, badge(verdictOf(claim)), el("span", { class: "line" }, `  ${claim.id}${claim.score === null ? "" : ` \u00b7 probability of support ${probability(claim.score)}`}${claim.stop ? ` \u00b7 ${STOPPED[claim.stop]}` : ""} \u00b7 ${cost.join("; ")}`)),
    el("h2", { class: "title", id: "claim-title", tabindex: "-1" }, claim.text),
    outcome(claim),
    ...(claim.parts.length ? [el("h3", {}, "Parts"), el("ul", { class: "said" }, ...claim.parts.map((part, place) =>
      el("li", {}, last && last.parts[place] ? badge(last.parts[place]) : null, " ", part)))] : []),
    ...[pathSection(claim, whole)].filter(Boolean),
    el("h3", {}, "What was read, from the final text towards the sources"),
    el("ol", { class: "chain" },
      el("li", {}, el("div", {}, nodeButton(data.terminal), el("span", { class: "line" }, "  final text")), el("ul", { class: "said" }, ...finalSentences().map(({ text }) => el("li", {}, text)))),
      ...claim.steps.map((step, place) => stepCard(step, place, whole))),
  );
}
function showNode() {
  const section = at("node");
  section.hidden = state.node < 0;
  if (state.node < 0) return;
  const node = nodes[state.node], claim = current(), found = claim ? marks(claim, 0) : null;
  const lit = found && found.evidence.get(node.number);
  const listed = (title, numbers) => (numbers.length ? el("p", { class: "list" }, `${title} (${numbers.length}): `, ...numbers.slice(0, 40).map(nodeButton), numbers.length > 40 ? `and ${numbers.length - 40} more` : "") : null);
  section.replaceChildren(
    el("div", { class: "bar" }, el("h2", { tabindex: "-1", id: "node-title" }, node.label), el("button", { type: "button", class: "node", onclick: () => chooseNode(-1) }, "Close")),
    el("p", { class: "line" }, node.label === node.id ? stageName(node.stage) : `${node.id} \u00b7 ${stageName(node.stage)}`),
    el("p", {}, ...data.texts[node.number].flatMap(([id, text]) => [el("span", { class: (lit && lit.has(id)) || (claim && claim.sentence === id) ? "hit" : "" }, text), " "])),
    ...[listed("Made from", sources[node.number]), listed("Used for", outputs[node.number])].filter(Boolean),
  );
}
function chooseNode(number) {
  state.node = number;
  show();
  if (number >= 0) { at("node").scrollIntoView({ block: "nearest" }); at("node-title").focus({ preventScroll: true }); }
}
