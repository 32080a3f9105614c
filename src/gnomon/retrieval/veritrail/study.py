"""The study: does the walk name the right claims, the right steps and the right paths, and what does each part add?"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pandas as pd
from pydantic import Field, TypeAdapter

from gnomon.evidence import Claim, Finding
from gnomon.evidence.resampling import from_weights
from gnomon.evidence.weighted import auroc
from gnomon.retrieval.veritrail import rulings
from gnomon.retrieval.veritrail.check import VALID
from gnomon.retrieval.veritrail.experiments import (
    CHECKS,
    checked_pairs,
    exact_walks,
    measured_process,
    noisy_walks,
    reading,
)
from gnomon.retrieval.veritrail.granularity import merged_stages
from gnomon.retrieval.veritrail.loaders.json_format import to_mapping
from gnomon.retrieval.veritrail.statements import CORE_KINDS, HARD_KINDS
from gnomon.retrieval.veritrail.trail import Trail
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Gated, Tables, Unit, UnitRun

_GATE = f"the judge check reaches an AUROC of {VALID}"
_LOCATION_CONTROLS = ("stage-prior", "permuted-stages", "rewired")
_SENTENCES_A_SECOND = 70  # MiniLM on one core
_FINE = {"depth": 8, "fan": 2, "chunks": 64, "facts": 2, "claims": 24, "near_duplicates": 3, "p_error": 0.5}


class Veritrail(Study):
    """Is a claim of a generated text supported by its sources, and if not, which step brought it in?"""

    name = "veritrail"
    title = "Tracing claims through several generative steps, against direct checks and rewired processes"
    wing = "retrieval"
    paper = Paper(
        "VeriTrail: Closed-Domain Hallucination Detection with Traceability",
        "D. Metropolitansky, J. Larson",
        arxiv="2505.21786",
    )
    claims = (
        Claim(
            "walk-exact",
            "With a perfect judge a gap of L steps is bridged if and only if q > L, and every error is located",
            kind="exact",
            statistic="claims whose verdict or stage breaks the rule",
            unit="claim and q",
            paper_ref="section 3",
        ),
        Claim(
            "markov-exact",
            "With a judge that errs at known rates, claims end supported as often as a Markov chain predicts",
            kind="exact",
            statistic=f"cells that depart by more than {rulings.SIGMAS} standard errors",
            unit="pattern, q and rates",
            paper_ref="ours",
        ),
        Claim(
            "judge-discriminates",
            "The offline judge tells what supports a claim from what nearly does, better than its parts alone",
            kind="contrast",
            statistic="AUROC over pairs",
            controls=("cosine", "recall"),
            unit="relation family",
            smallest=0.02,
            paper_ref="ours",
        ),
        Claim(
            "q-precision",
            "More rounds before giving up make verdicts of no support more precise",
            kind="contrast",
            statistic="precision of unsupported",
            controls=("q=1",),
            unit="process",
            smallest=0.02,
            gate=_GATE,
            paper_ref="Table 2",
            paper_value="55.1 at q=1, 84.5 at q=3",
        ),
        Claim(
            "q-recall",
            "More rounds before giving up overlook more unsupported claims",
            kind="contrast",
            statistic="recall of unsupported",
            controls=("q=1",),
            unit="process",
            expect="less",
            smallest=0.02,
            gate=_GATE,
            paper_ref="Table 2",
            paper_value="89.8 at q=1, 55.9 at q=3",
        ),
        Claim(
            "beats-direct",
            "With three sentences of evidence a step, following the path beats checks that do not follow it",
            kind="contrast",
            statistic="macro F1",
            controls=("direct", "terminal-only", "flat-pool"),
            unit="process",
            smallest=0.02,
            gate=_GATE,
            paper_ref="Table 1",
            paper_value="84.5 against 69.6 (FABLES+), 79.5 against 75.1 (DiverseSumm+)",
        ),
        Claim(
            "short-reader",
            "So it does with a judge that overlooks what lies beyond twenty sentences",
            kind="contrast",
            statistic="macro F1",
            controls=("direct",),
            unit="process",
            smallest=0.02,
            gate=_GATE,
            paper_ref="section 5",
        ),
        Claim(
            "locates",
            "The step that brought an error in is named",
            kind="contrast",
            statistic="share of errors whose stage is named exactly",
            controls=_LOCATION_CONTROLS,
            unit="process",
            smallest=0.1,
            gate=_GATE,
            paper_ref="section 3.3",
        ),
        Claim(
            "locates-early",
            "So is one at least two steps before the final text",
            kind="contrast",
            statistic="share of errors whose stage is named exactly",
            controls=_LOCATION_CONTROLS,
            unit="process",
            smallest=0.1,
            gate=_GATE,
            paper_ref="section 3.3",
        ),
        Claim(
            "provenance",
            "The path of a true claim from its source document to the final text is found",
            kind="contrast",
            statistic="F1 of the path's edges",
            controls=("rewired", "random-path"),
            unit="process",
            smallest=0.1,
            gate=_GATE,
            paper_ref="section 3.3",
        ),
        Claim(
            "selection-matters",
            "Selecting evidence matters",
            kind="contrast",
            statistic="macro F1",
            controls=("random-evidence",),
            unit="process",
            smallest=0.05,
            gate=_GATE,
            paper_ref="appendix, ablation",
        ),
        Claim(
            "checks-matter",
            "Each check of the offline judge matters: numbers, dates, names, polarity, who did what to whom",
            kind="contrast",
            statistic="macro F1",
            controls=tuple(f"no-{check}" for check in CHECKS),
            unit="process",
            smallest=0.01,
            gate=_GATE,
            paper_ref="ours",
        ),
        Claim(
            "cost",
            "What is read for a true claim grows more slowly than the source",
            kind="contrast",
            statistic="exponent of sentences read in source sentences",
            controls=("direct",),
            unit="process",
            expect="less",
            smallest=0.05,
            paper_ref="section 3",
        ),
    )

    class Config(StudyConfig):
        """How many processes, of which shapes."""

        encoder: str = Field(default="auto", pattern="^(auto|minilm|tf-idf)$", description="Sentence vectors.")
        pairs: int = Field(default=120, ge=60, multiple_of=2, description="Pairs of the judge check.")
        processes: int = Field(default=16, ge=2, description="Processes of the main setting.")
        chunks: int = Field(default=8, ge=2)
        facts: int = Field(default=4, ge=2, description="Facts a chunk.")
        claims_each: int = Field(default=12, ge=4, description="Claims a process.")
        depth: int = Field(default=5, ge=3, description="Stages of the main setting.")
        near_duplicates: int = Field(default=3, ge=0, description="Near-duplicates a claim, main setting.")
        crowding: tuple[int, ...] = Field(default=(), description="Further settings: near-duplicates a claim.")
        depths: tuple[int, ...] = Field(default=(), description="Further settings: stages.")
        other_shapes: bool = Field(default=False, description="Also GraphRAG's topology, and errors hard to see.")
        others: int = Field(default=10, ge=2, description="Processes of each further setting.")
        merged: int = Field(default=0, ge=0, description="Processes of 8 stages of which some are merged.")
        oracle_seeds: int = Field(default=4, ge=1, description="Exact walks: processes of each of three shapes.")
        noisy_blocks: int = Field(default=2, ge=1)
        noisy_processes: int = Field(default=5, ge=1, description="Processes a block of noisy walks.")
        noisy_repeats: int = Field(default=8, ge=1, description="Noisy judges a process.")
        sizes: tuple[int, ...] = Field(default=(8, 32, 128), description="Chunks, for the cost of reading.")
        replicates: int = Field(default=10, ge=5, description="Processes of each size.")
        presets: ClassVar = {
            "quick": {
                "claims": (
                    "walk-exact", "markov-exact", "judge-discriminates", "q-precision", "locates", "locates-early",
                    "provenance", "short-reader", "selection-matters", "cost",
                ),
            },
            "full": {
                "pairs": 400,
                "processes": 30,
                "chunks": 16,
                "facts": 6,
                "claims_each": 14,
                "crowding": (0, 10, 25),
                "depths": (3, 4, 6, 8),
                "other_shapes": True,
                "merged": 12,
                "oracle_seeds": 20,
                "noisy_blocks": 8,
                "noisy_processes": 10,
                "noisy_repeats": 12,
                "sizes": (8, 32, 128, 512),
                "replicates": 12,
            },
        }  # fmt: skip

    def units(self, config: Any) -> list[Unit]:
        """The judge check, every generated process, and blocks of walks with judges whose errors are known."""
        check = Unit(
            "judge_check",
            {"pairs": config.pairs, "encoder": config.encoder},
            seconds=8 + 2 * config.pairs / _SENTENCES_A_SECOND,
        )
        units = [check]
        shape = {
            "topology": "hierarchical",
            "depth": config.depth,
            "fan": 2,
            "chunks": config.chunks,
            "facts": config.facts,
            "claims": config.claims_each,
            "near_duplicates": config.near_duplicates,
            "errors": "core",
        }
        settings = [("main", config.processes, shape)]
        settings += [
            (f"near-duplicates-{number}", config.others, {**shape, "depth": 4, "fan": 4, "near_duplicates": number})
            for number in config.crowding
        ]
        settings += [(f"depth-{depth}", config.others, {**shape, "depth": depth}) for depth in config.depths]
        if config.other_shapes:
            settings.append(("graphrag", config.others, {**shape, "topology": "graphrag", "depth": 6}))
            settings.append(("hard", config.others, {**shape, "errors": "hard"}))
        for setting, count, made in settings:
            told = made["chunks"] * (made["facts"] + 1) + made["claims"] * (made["near_duplicates"] + 1)
            for process in range(count):
                params = {"setting": setting, "process": process, "encoder": config.encoder, **made}
                params["example"] = setting == "main" and process == 0
                seconds = 1 + 2.4 * told / _SENTENCES_A_SECOND
                units.append(Unit("process", params, needs=(check,), seconds=seconds))
        for process in range(config.merged):
            units.append(Unit("merged", {"process": process, "encoder": config.encoder, **_FINE}, seconds=6))
        units.append(Unit("oracle", {"seeds": config.oracle_seeds}, seconds=0.2 * config.oracle_seeds))
        size = {"processes": config.noisy_processes, "repeats": config.noisy_repeats}
        for block in range(config.noisy_blocks):
            cost = 0.04 * config.noisy_processes * config.noisy_repeats
            units.append(Unit("noisy", {"block": block, **size}, seconds=cost))
        cost = 0.002 * sum(config.sizes)
        for replicate in range(config.replicates):
            units.append(Unit("reading", {"replicate": replicate, "sizes": list(config.sizes)}, seconds=cost))
        return units

    def measure_judge_check(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """The offline judge on pairs of which some support and some nearly do."""
        at = unit.params
        table = checked_pairs(at["pairs"], int(run.rng("pairs").integers(2**31)), at["encoder"])
        run.note("sentence vectors", {"encoder": table["made_with"].iloc[0]})
        return table

    def measure_process(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """One generated process under every arm, if the judge is fit to judge."""
        checked: Any = run.need(unit.needs[0]).tables["judge_check"]
        area = from_weights(auroc(checked["treatment"], checked["supports"].astype(float)), len(checked)).value
        if area < VALID:
            raise Gated(f"judge not validated: AUROC {area:.2f}, needs >= {VALID}")
        at = dict(unit.params)
        names = ("topology", "depth", "fan", "chunks", "facts", "claims", "near_duplicates")
        shape = {name: at[name] for name in names}
        if at["errors"] == "core":
            shape |= {"kinds": CORE_KINDS, "p_error": 0.4}
        else:
            shape |= {"kinds": HARD_KINDS, "p_error": 0.4, "p_conflict": 0.1}
        stream = (at["setting"], at["process"])
        seed = int(run.rng("process", *stream).integers(2**31))
        tables, process, trail = measured_process(shape, seed, at["encoder"], run.rng("nulls", *stream))
        dag = f"{at['setting']}-{at['process']:03d}"
        tables = {name: table.assign(dag=dag) for name, table in tables.items()}
        if at["example"]:
            stored = {"process": json.dumps(to_mapping(process)), "trail": TypeAdapter(Trail).dump_json(trail).decode()}
            tables["example"] = pd.DataFrame([stored])
        return tables

    def measure_merged(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """One generated process, its errors located in fewer and fewer stages."""
        at = dict(unit.params)
        process, encoder = at.pop("process"), at.pop("encoder")
        seed = int(run.rng("merged", process).integers(2**31))
        return merged_stages(at, seed, encoder, run.rng("merged nulls", process))

    def measure_oracle(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Walks with a judge that is never wrong."""
        return exact_walks(run.rng("oracle").integers(2**31, size=unit.params["seeds"]).tolist())

    def measure_noisy(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Walks with a judge that errs at known rates."""
        at = unit.params
        return noisy_walks(int(run.rng("noisy", at["block"]).integers(2**20)), at["processes"], at["repeats"])

    def measure_reading(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """What is read for a true claim, over the size of the source."""
        seed = int(run.rng("reading", unit.params["replicate"]).integers(2**31))
        return reading(seed, unit.params["sizes"])

    def judge(self, tables: Tables, config: Any) -> list[Finding]:
        """One finding for every claim."""
        decided = config.claims or [claim.name for claim in self.claims]
        return [
            rulings.judge(claim, tables)
            if claim.name in decided
            else Finding(claim, withheld="not decided by this preset")
            for claim in self.claims
        ]

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """The figures, controls beside the treatment."""
        from gnomon.retrieval.veritrail.figures import charts

        return charts(tables, findings)
