"""Processes of several generative steps with planted errors, and what is true of every claim of their final text.

Facts of an invented world are written into source chunks, and every step writes those that it keeps anew, in other
words. On its way a fact may be falsified (the error then travels on to the final text), left out of some steps and
come back, or be denied by another source. What implies what is known by construction.

>>> process, truth = make_process(0, chunks=4, claims=6)
>>> process.last_stage, len(truth.claims)
(4, 6)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from gnomon.data.fact_world import Fact, FactWorld, Half
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.judges.judge import Verdict
from gnomon.retrieval.veritrail.process import Node, Process
from gnomon.retrieval.veritrail.statements import CORE_KINDS, Kind, Statement, allows, falsified, near_duplicate

Topology = Literal["hierarchical", "graphrag", "rag"]

FINAL = "final"
"""Id of the terminal node."""

_FILLER = (
    "The weather that week was mild for the season.",
    "Local newspapers printed several letters from readers.",
    "A small crowd had gathered by the river in the evening.",
    "The town hall clock was being repaired at the time.",
    "Trains ran late for most of the afternoon.",
    "Shops along the main street closed early.",
    "Many people remember the long summer for its thunderstorms.",
    "The old bridge was lit up for the holiday.",
    "A school choir sang in the square.",
    "Prices at the fish market were higher than usual.",
    "Visitors praised the new paintings in the museum.",
    "Two streets were closed while the water main was replaced.",
    "The orchestra opened its season with a Haydn symphony.",
    "Gardeners planted lime trees along the canal.",
    "The football match ended without a goal.",
    "Cyclists complained about the cobblestones near the station.",
)


@dataclass(frozen=True)
class ClaimTruth:
    """What is true of one claim of the final text.

    Args:
        claim: The claim: one sentence of the final text.
        label: The right verdict.
        kind: ``faithful``, ``skip`` (true, but left out of some steps), ``conflict`` (two sources disagree), or how it
            was falsified.
        stage: Stage at which the error entered; ``None`` for a claim without one.
        skipped: Stages that left a true claim out.
        route: Nodes the fact travelled through, from its source to the final text.
        root: Id of the source sentence the claim rests on, or was falsified from; empty for an invention.
        supporting: Ids of all sentences that imply the claim, those of the final text left out.
        contradicting: Ids of sentences that deny it, for a conflict.
    """

    claim: Claim
    label: Verdict
    kind: str
    stage: int | None
    skipped: tuple[int, ...]
    route: tuple[str, ...]
    root: str
    supporting: frozenset[str]
    contradicting: frozenset[str] = frozenset()

    @cached_property
    def carriers(self) -> tuple[str, ...]:
        """Nodes of the route that state the claim, the final text included."""
        stating = {sentence.rpartition("#")[0] for sentence in self.supporting}
        return tuple(node for node in self.route if node in stating or node == self.route[-1])


@dataclass(frozen=True)
class Truth:
    """What is true of a generated process: of its claims, and what each of its sentences says."""

    claims: tuple[ClaimTruth, ...]
    statements: dict[str, Statement] = field(repr=False)

    def __getitem__(self, claim: str) -> ClaimTruth:
        return self._by_id[claim]

    @cached_property
    def _by_id(self) -> dict[str, ClaimTruth]:
        return {truth.claim.id: truth for truth in self.claims}

    @property
    def texts(self) -> list[Claim]:
        """The claims to verify."""
        return [truth.claim for truth in self.claims]


def make_process(
    seed: int,
    *,
    topology: Topology = "hierarchical",
    depth: int = 4,
    fan: int = 4,
    chunks: int = 16,
    claims: int = 14,
    facts: int = 6,
    kinds: Sequence[Kind] = CORE_KINDS,
    p_error: float = 0.35,
    p_skip: float = 0.2,
    max_skip: int = 2,
    p_conflict: float = 0.0,
    near_duplicates: int = 2,
    keep: float = 0.6,
    half: Half = "evaluation",
) -> tuple[Process, Truth]:
    """A process with planted errors and omissions, and its truth.

    Args:
        seed: Equal seeds give equal processes.
        topology: ``hierarchical``: chunks, one summary a chunk, merged ``fan`` at a time, the last merge takes all;
            ``graphrag``: chunks, descriptions of each chunk's organisations, merged descriptions, community reports,
            map answers, final (six stages); ``rag``: chunks and the final text.
        depth: Stages of a hierarchical process, sources and final text included.
        fan: Texts merged into one, and chunks an answer of ``graphrag`` draws on.
        chunks: Source texts.
        claims: Sentences of the final text, one claim each.
        facts: Facts a chunk.
        kinds: Ways to falsify, dealt in turn.
        p_error: Share of claims that are falsified, each at a random stage.
        p_skip: Share of claims that are true and left out of 1 to ``max_skip`` consecutive stages in between.
        max_skip: Longest gap.
        p_conflict: Share of claims that another source denies.
        near_duplicates: Facts a claim that differ from it in two slots, in random chunks.
        keep: Chance that a fact which is no claim survives a step.
        half: Half of the fact world: what is fitted on ``fit`` is tested on ``evaluation``.

    Raises:
        ValueError: If a size or share is out of range, or there are not enough facts for the claims.
    """
    _require_sizes(depth, fan, chunks, claims, facts, p_error + p_skip + p_conflict)
    rng = np.random.default_rng((seed, 4))
    world = FactWorld(half, seed=seed)
    drawn = world.facts(chunks * facts + claims)
    placed, invented = drawn[: chunks * facts], drawn[chunks * facts :]
    layout = _Layout(topology, depth, fan, chunks, sorted(world.organisations))
    kinds_of_claims = _plan(claims, p_error, p_skip, p_conflict, kinds, rng)
    chosen = _choose(placed, kinds_of_claims, rng)
    writer = _Writer(layout, rng)
    known = {Statement(fact).core for fact in placed}
    planned = []
    for number, (kind, index) in enumerate(zip(kinds_of_claims, chosen, strict=True)):
        chunk, fact = index // facts, placed[index]
        neighbours = [placed[other] for other in range(chunk * facts, (chunk + 1) * facts) if other != index]
        elsewhere = invented[number] if kind == "fab" else neighbours[int(rng.integers(len(neighbours)))]
        change = _change(fact, kind, world, rng, elsewhere, known)
        planned.append(writer.claim(change, kind, chunk, max_skip))
    taken = set(chosen)
    others = [(fact, index // facts) for index, fact in enumerate(placed) if index not in taken]
    for index in chosen:
        for _ in range(near_duplicates):
            others.append((near_duplicate(placed[index], world, rng), int(rng.integers(chunks))))
    said = {statement.core for plan in planned for statement in plan.change.statements}
    for fact, chunk in others:
        if Statement(fact).core not in said:
            writer.background(fact, chunk, keep)
    writer.filler()
    return writer.finished(planned)


def _require_sizes(depth: int, fan: int, chunks: int, claims: int, facts: int, share: float) -> None:
    for name, value, least in (("depth", depth, 2), ("fan", fan, 2), ("chunks", chunks, 2), ("facts", facts, 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if not 1 <= claims <= chunks * facts:
        raise ValueError(f"{chunks} chunks of {facts} facts hold 1 to {chunks * facts} claims, got claims={claims}")
    if not 0 <= share <= 1:
        raise ValueError(f"p_error + p_skip + p_conflict must lie in [0, 1], got {share:g}")


def _plan(
    claims: int, p_error: float, p_skip: float, p_conflict: float, kinds: Sequence[Kind], rng: np.random.Generator
) -> list[str]:
    """Kind of every claim, in random order; error kinds are dealt in turn, from a random one on."""
    errors, skips, conflicts = (round(share * claims) for share in (p_error, p_skip, p_conflict))
    first = int(rng.integers(len(kinds))) if kinds else 0
    dealt: list[str] = [kinds[(first + number) % len(kinds)] for number in range(errors)]
    dealt += ["skip"] * skips + ["conflict"] * conflicts
    dealt = (dealt + ["faithful"] * claims)[:claims]
    return [dealt[index] for index in rng.permutation(claims)]


def _choose(placed: list[Fact], plan: list[str], rng: np.random.Generator) -> list[int]:
    """A fact for every claim that allows its kind; the choosiest kinds choose first."""
    free = list(rng.permutation(len(placed)))
    needs = {"role": "role", "num": "num", "quantifier": "quantifier", "conflict": "num"}
    chosen: dict[int, int] = {}
    for claim in sorted(range(len(plan)), key=lambda claim: (plan[claim] != "role", plan[claim] not in needs)):
        need = needs.get(plan[claim])
        fitting = [index for index in free if need is None or allows(placed[index], need)]  # pyright: ignore[reportArgumentType]
        if not fitting:
            raise ValueError(f"none of the {len(placed)} facts can be falsified by {plan[claim]!r}; take more chunks")
        chosen[claim] = int(fitting[0])
        free.remove(fitting[0])
    return [chosen[claim] for claim in range(len(plan))]


@dataclass(frozen=True)
class _Change:
    """What the source says (nothing, for an invention), what the final text says, and what another source says."""

    true: Statement | None
    final: Statement
    rival: Statement | None = None

    @property
    def statements(self) -> list[Statement]:
        return [statement for statement in (self.true, self.final, self.rival) if statement]


def _change(
    fact: Fact, kind: str, world: FactWorld, rng: np.random.Generator, elsewhere: Fact, known: set[tuple[object, ...]]
) -> _Change:
    """The fate of a fact; what it is changed into is no other fact of the sources."""
    if kind in ("faithful", "skip"):
        return _Change(Statement(fact), Statement(fact))
    way: Kind = "num" if kind == "conflict" else kind  # pyright: ignore[reportAssignmentType]
    for _ in range(100):
        true, false = falsified(fact, way, world, rng, elsewhere=elsewhere)
        if false.core not in known or (true is not None and false.core == true.core):
            return _Change(true, true, false) if kind == "conflict" and true is not None else _Change(true, false)
    raise ValueError(f"every {way!r} change of {fact.sentence()!r} is another fact of the sources")


class _Layout:
    """Nodes of a topology by stage, their edges, and the route of a fact from its chunk to the final text."""

    def __init__(self, topology: Topology, depth: int, fan: int, chunks: int, organisations: list[str]) -> None:
        self.topology: Topology = topology
        self.fan = fan
        self.depth = {"hierarchical": depth, "graphrag": 6, "rag": 2}[topology]
        self.chunks = [f"chunk-{index:03d}" for index in range(chunks)]
        self._communities = {name: index // 3 for index, name in enumerate(organisations)}
        self.stages: dict[str, int] = dict.fromkeys(self.chunks, 1)
        self.edges: dict[tuple[str, str], None] = {}

    def route(self, chunk: int, organisation: str) -> tuple[str, ...]:
        """Nodes a fact about an organisation passes through; they and their edges are part of the process from now."""
        if self.topology == "graphrag":
            community = self._communities[organisation]
            slug = organisation.replace(" ", "-").lower()
            between = [
                f"raw-{chunk:03d}-{slug}", f"entity-{slug}", f"report-{community}", f"map-{community // self.fan}"
            ]  # fmt: skip
        else:
            between = [f"s{stage}-{chunk // self.fan ** max(0, stage - 2):03d}" for stage in range(2, self.depth)]
        route = (self.chunks[chunk], *between, FINAL)
        for stage, node in enumerate(route, start=1):
            self.stages[node] = stage
        self.edges.update(dict.fromkeys(pairwise(route)))
        return route


@dataclass(frozen=True)
class _Planned:
    """A claim on its way: what is said of it, where an error enters, which stages leave it out."""

    change: _Change
    kind: str
    stage: int | None
    skipped: tuple[int, ...]
    route: tuple[str, ...]


class _Writer:
    """Puts statements into nodes, and the nodes into a process."""

    def __init__(self, layout: _Layout, rng: np.random.Generator) -> None:
        self.layout = layout
        self.rng = rng
        self.contents: dict[str, list[Statement | str]] = {}
        if layout.topology != "graphrag":  # every chunk is summarised, whatever it says
            for chunk in range(len(layout.chunks)):
                layout.route(chunk, "")

    def claim(self, change: _Change, kind: str, chunk: int, max_skip: int) -> _Planned:
        """Write a claim along its route, with what is to happen to it."""
        depth = self.layout.depth
        stage: int | None = None
        skipped: tuple[int, ...] = ()
        if kind == "skip" and depth > 2:
            length = int(self.rng.integers(1, min(max_skip, depth - 2) + 1))
            start = int(self.rng.integers(2, depth - length + 1))
            skipped = tuple(range(start, start + length))
        elif change.final != change.true:
            stage = int(self.rng.integers(2, depth + 1))
        organisation = (change.true or change.final).fact.organisation
        route = self.layout.route(chunk, organisation)
        for at, node in enumerate(route, start=1):
            says = change.final if stage is None or at >= stage else change.true
            if says is not None and at not in skipped:
                self._say(node, says)
        if change.rival is not None:
            for node in self.layout.route((chunk + 1) % len(self.layout.chunks), organisation)[:-1]:
                self._say(node, change.rival)
        return _Planned(change, kind, stage, skipped, route)

    def background(self, fact: Fact, chunk: int, keep: float) -> None:
        """Write a fact into its chunk and, as long as it survives, into what is made from it; never the final text."""
        for at, node in enumerate(self.layout.route(chunk, fact.organisation)[:-1]):
            if at and self.rng.random() >= keep:
                return
            self._say(node, Statement(fact))

    def filler(self) -> None:
        """One sentence without a fact for every chunk."""
        for chunk in self.layout.chunks:
            self.contents.setdefault(chunk, []).append(_FILLER[int(self.rng.integers(len(_FILLER)))])

    def finished(self, planned: list[_Planned]) -> tuple[Process, Truth]:
        """The process, with the sentences of a source or intermediate node in random order, and its truth."""
        nodes: list[Node] = []
        said: dict[str, Statement] = {}
        lines: list[str] = []
        for node, stage in sorted(self.layout.stages.items(), key=lambda item: (item[1], item[0])):
            contents = self.contents.get(node, [])
            order = range(len(contents)) if node == FINAL else self.rng.permutation(len(contents))
            lines = []
            for index, statement in enumerate(contents[place] for place in order):
                if isinstance(statement, Statement):
                    said[f"{node}#{index}"] = statement
                lines.append(statement if isinstance(statement, str) else statement.written(self.rng))
            nodes.append(Node(node, " ".join(lines), stage))
        by_core: dict[tuple[object, ...], list[str]] = {}
        for sentence, statement in said.items():
            if not sentence.startswith(f"{FINAL}#"):
                by_core.setdefault(statement.core, []).append(sentence)
        truths, start = [], 0
        for number, (plan, line) in enumerate(zip(planned, lines, strict=True)):  # the final text is the last node
            claim = Claim(f"c{number + 1:02d}", line, f"{FINAL}#{number}", (start, start + len(line)))
            truths.append(_truth(plan, claim, by_core, said))
            start += len(line) + 1
        return Process(nodes, self.layout.edges, FINAL), Truth(tuple(truths), said)

    def _say(self, node: str, statement: Statement) -> None:
        self.contents.setdefault(node, []).append(statement)


def _truth(
    plan: _Planned, claim: Claim, by_core: dict[tuple[object, ...], list[str]], said: dict[str, Statement]
) -> ClaimTruth:
    change = plan.change
    told = by_core.get(change.final.core, [])
    source = by_core.get(change.true.core, []) if change.true else []
    denied = by_core.get(change.rival.core, []) if change.rival else []
    return ClaimTruth(
        claim,
        "inconclusive" if change.rival else "supported" if plan.stage is None else "unsupported",
        plan.kind,
        plan.stage,
        plan.skipped,
        plan.route,
        next((sentence for sentence in source if sentence.startswith(f"{plan.route[0]}#")), ""),
        frozenset(sentence for sentence in told if said[sentence].implies(change.final)),
        frozenset(denied),
    )
