"""The study: what the theory promises exactly, and what diversity costs on collections the defaults never saw."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from gnomon.evidence import Claim, Finding
from gnomon.retrieval.welfare_neighbors import rulings
from gnomon.retrieval.welfare_neighbors.baselines import topk
from gnomon.retrieval.welfare_neighbors.experiments import mixture, sentence_pools, sentence_world
from gnomon.retrieval.welfare_neighbors.instances import approximate_oracles, several_attributes, single_attribute
from gnomon.retrieval.welfare_neighbors.metrics import attribute_counts, exposure
from gnomon.retrieval.welfare_neighbors.selection import select
from gnomon.retrieval.welfare_neighbors.sweeps import GAMMA, METHODS, certificates, sweep, trends
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Tables, Unit, UnitRun

BROAD_ONLY = ("mmr", "dpp")
"""Baselines that know no attributes: measured on broad queries."""

MIXTURE_METHODS = tuple(method for method in METHODS if method not in ("raw-cosine", "p-mean", "scale"))
CERTIFIED = {"contrast": {}, "raw cosine": {"contrast": "none"}}
_FRONT_CONTROLS = ("matched-random-swap", "quota-filled")


class WelfareNeighborsStudy(Study):
    """Do welfare-diverse neighbours spread results where the query leaves room, and only there?"""

    name = "welfare-neighbors"
    title = "Welfare-diverse nearest neighbours against quotas, chance and top-k"
    wing = "retrieval"
    paper = Paper(
        "Welfarist Formulations for Diverse Similarity Search",
        "S. Barman, N. Das, S. Gupta, K. Shiragur",
        arxiv="2602.08742",
    )
    claims = (
        Claim(
            "greedy-exact",
            "With one attribute a vector, greedy reaches the largest p-mean welfare, for every p",
            kind="exact",
            statistic="relative gap to the best of all sets, at most 1e-12",
            unit="instance",
            paper_ref="Theorems 1, 11",
        ),
        Claim(
            "multi-greedy",
            "With several attributes a vector, greedy reaches 1 - 1/e of the best gain",
            kind="exact",
            statistic="greedy gain over best gain of the transformed objective",
            unit="instance",
            paper_ref="Theorem 3",
        ),
        Claim(
            "ann-factor",
            "An alpha-approximate index costs at most the factor alpha in welfare",
            kind="exact",
            statistic="welfare over exact welfare, less alpha",
            unit="instance",
            paper_ref="Corollaries 2, 12",
        ),
        Claim(
            "certificate",
            "An answer whose last gain exceeds what the pool's end could offer is the answer over everything",
            kind="exact",
            statistic="certified answers that differ",
            unit="query and pool size",
            paper_ref="ours",
        ),
        Claim(
            "stays-specific",
            "A query that names a city keeps it, more than under a quota that spreads broad queries as far",
            kind="contrast",
            statistic="share of results from the city asked for",
            controls=("equal-entropy-quota",),
            unit="relation family",
            smallest=0.05,
            paper_ref="section 1",
        ),
        Claim(
            "raw-cosine-stays-specific",
            "So it does without the contrast, on sums of raw cosines with the same gamma",
            kind="contrast",
            statistic="share of results from the city asked for",
            controls=("equal-entropy-quota",),
            unit="relation family",
            smallest=0.05,
            paper_ref="section 1",
        ),
        Claim(
            "contrast-pays",
            "The contrast keeps more of the city asked for than raw cosine whose gamma spreads broad queries as far",
            kind="contrast",
            statistic="share of results from the city asked for",
            controls=("equal-entropy-raw-cosine",),
            unit="relation family",
            smallest=0.05,
            paper_ref="ours",
        ),
        Claim(
            "broad-diverse",
            "A query that names no city gets results from more of them",
            kind="contrast",
            statistic="entropy of cities, bits",
            controls=("top-k", "shuffled-attributes"),
            unit="relation family",
            smallest=0.1,
            paper_ref="Table 2",
        ),
        Claim(
            "front-sentences",
            "At equal relevance welfare spreads sentences over more cities than chance or a quota does",
            kind="contrast",
            statistic="entropy at equal relevance, bits",
            controls=_FRONT_CONTROLS,
            unit="relation family",
            smallest=0.02,
            paper_ref="Figure 2",
        ),
        Claim(
            "front-clusters",
            "So it does where attributes are clusters of the vectors themselves",
            kind="contrast",
            statistic="entropy at equal relevance, bits",
            controls=_FRONT_CONTROLS,
            unit="mixture",
            smallest=0.02,
            paper_ref="Figure 2",
        ),
        Claim(
            "front-skewed",
            "So it does where three of twenty attributes hold nine tenths of the vectors",
            kind="contrast",
            statistic="entropy at equal relevance, bits",
            controls=_FRONT_CONTROLS,
            unit="mixture",
            smallest=0.02,
            paper_ref="Figure 2",
        ),
        Claim(
            "p-relevance",
            "Relevance rises with p",
            kind="contrast",
            statistic="rank correlation of p and relevance ratio, by query",
            controls=("permuted-p",),
            unit="relation family",
            smallest=0.1,
            paper_ref="Table 3",
        ),
        Claim(
            "p-spread",
            "Spread falls with p",
            kind="contrast",
            statistic="rank correlation of p and entropy, by query",
            controls=("permuted-p",),
            unit="relation family",
            expect="less",
            smallest=0.1,
            paper_ref="Table 3",
        ),
    )

    class Config(StudyConfig):
        """Sizes of both collections and of the random instances."""

        encoder: str = Field(default="auto", pattern="^(auto|minilm|tf-idf)$", description="Sentence vectors.")
        worlds: int = Field(default=1, ge=1, description="Worlds of sentences.")
        sentences: int = Field(default=2400, ge=200, description="Sentences a world.")
        cities: int = Field(default=3, ge=1, le=16, description="Cities asked for with each search.")
        k: int = Field(default=10, ge=2, description="Results a query, sentences.")
        pool: int = Field(default=200, ge=20, description="Candidates a query, sentences.")
        pools: tuple[int, ...] = Field(default=(15, 25, 50, 100), description="Smaller pools to certify.")
        mixtures: int = Field(default=10, ge=2, description="Gaussian mixtures of each kind.")
        points: int = Field(default=3000, ge=200)
        centres: int = Field(default=50, ge=2)
        dimension: int = Field(default=32, ge=2)
        queries: int = Field(default=16, ge=2, description="Queries a mixture.")
        mixture_k: int = Field(default=20, ge=2)
        mixture_pool: int = Field(default=300, ge=20)
        blocks: int = Field(default=3, ge=1, description="Units of random instances.")
        instances: int = Field(default=100, ge=25, description="Instances a block.")
        presets: ClassVar = {
            "quick": {},
            "full": {
                "worlds": 3,
                "sentences": 4000,
                "cities": 6,
                "points": 20_000,
                "centres": 100,
                "dimension": 64,
                "queries": 32,
                "mixture_k": 50,
                "mixture_pool": 1000,
                "blocks": 8,
                "instances": 400,
            },
        }

    def units(self, config: Any) -> list[Unit]:
        """Worlds, every method on each of them, mixtures, and blocks of random instances."""
        units = []
        for world in range(config.worlds):
            sizes = {"sentences": config.sentences, "cities": config.cities, "encoder": config.encoder}
            embedded = Unit("embed", {"world": world, **sizes}, seconds=5 + config.sentences / 150)
            units.append(embedded)
            shape = {"world": world, "k": config.k, "pool": config.pool}
            for method in METHODS:
                cost = 2.0 if method in BROAD_ONLY else 0.5
                units.append(Unit("select", {**shape, "method": method}, needs=(embedded,), seconds=cost))
            units.append(Unit("pool", {**shape, "pools": list(config.pools)}, needs=(embedded,), seconds=0.5))
        shape = {
            "points": config.points,
            "centres": config.centres,
            "dimension": config.dimension,
            "queries": config.queries,
            "k": config.mixture_k,
            "pool": config.mixture_pool,
        }
        cost = 2e-8 * config.queries * config.mixture_pool * config.dimension * config.mixture_k + config.points / 5000
        for kind in ("clusters", "skewed"):
            for number in range(config.mixtures):
                units.append(Unit("mixture", {"kind": kind, "mixture": number, **shape}, seconds=cost))
        for block in range(config.blocks):
            size = {"block": block, "instances": config.instances}
            units.append(Unit("brute", size, seconds=0.004 * config.instances))
            units.append(Unit("oracle", size, seconds=0.003 * config.instances))
        return units

    def measure_embed(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Sentences and queries of a world with their vectors, which are kept as artifacts."""
        at = unit.params
        seed = int(run.rng("world", at["world"]).integers(2**31))
        made = sentence_world(at["sentences"], seed, at["cities"], at["encoder"])
        np.save(run.artifact("vectors.npy"), made.vectors)
        np.save(run.artifact("query_vectors.npy"), made.query_vectors)
        run.note("sentence vectors", {"encoder": made.encoder})
        world = pd.DataFrame({"made_with": [made.encoder]})
        return {"world": world, "sentences": made.table, "queries": made.queries}

    def measure_select(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """One method over its knob on the queries of a world."""
        at = unit.params
        done = run.need(unit.needs[0])
        queries: Any = done.tables["embed.queries"]
        keep = (
            (queries["kind"] == "broad").to_numpy() if at["method"] in BROAD_ONLY else np.ones(len(queries), dtype=bool)
        )
        asked: Any = queries[keep].reset_index(drop=True)
        pools = sentence_pools(
            done.tables["embed.sentences"],
            asked,
            np.load(done.path / "vectors.npy"),
            np.load(done.path / "query_vectors.npy")[keep],
            at["pool"],
            run.rng("labels", at["world"]),
        )
        rows = sweep(at["method"], pools, at["k"], run.rng("swaps", at["world"]))
        tables = {"readings": _with_queries(rows, asked)}
        if at["method"] == "p-mean":
            tables["trends"] = _with_queries(trends(rows, run.rng("exponents", at["world"])), asked)
        return tables

    def measure_pool(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Answers from smaller pools beside the answer from the largest."""
        at = unit.params
        done = run.need(unit.needs[0])
        pools = sentence_pools(
            done.tables["embed.sentences"],
            done.tables["embed.queries"],
            np.load(done.path / "vectors.npy"),
            np.load(done.path / "query_vectors.npy"),
            at["pool"],
            run.rng("labels", at["world"]),
        )
        return certificates(pools, at["k"], tuple(at["pools"]), CERTIFIED)

    def measure_mixture(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Every method over its knob on the queries of one mixture, and how often each attribute is shown."""
        at = unit.params
        shape = (at["points"], at["centres"], at["dimension"], at["queries"], at["pool"])
        pools = mixture(at["kind"], *shape, run.rng("mixture", at["kind"], at["mixture"]))
        swaps = run.rng("swaps", at["kind"], at["mixture"])
        rows = pd.concat([sweep(name, pools, at["k"], swaps).assign(method=name) for name in MIXTURE_METHODS])
        chosen = select(pools.similarity, pools.attributes, at["k"], gamma=GAMMA).indices
        shown = {"treatment": chosen, "top-k": topk(pools.similarity, at["k"])}
        shares = [
            pd.DataFrame({"arm": arm, "attribute": range(pools.count), "share": exposure(_counts(pools, answer))})
            for arm, answer in shown.items()
        ]
        return {"readings": rows, "exposure": pd.concat(shares)}

    def measure_brute(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Random instances against everything there is."""
        at = unit.params
        return {
            "single": single_attribute(at["instances"], run.rng("single", at["block"])),
            "several": several_attributes(at["instances"], run.rng("several", at["block"])),
        }

    def measure_oracle(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Random instances through an index that misses candidates."""
        return approximate_oracles(unit.params["instances"], run.rng("oracle", unit.params["block"]))

    def judge_greedy_exact(self, tables: Tables, config: Any) -> Finding:
        """No instance has a gap; the broken greedy has."""
        return rulings.greedy_exact(self.claim("greedy-exact"), tables, config)

    def judge_multi_greedy(self, tables: Tables, config: Any) -> Finding:
        """No instance falls below 1 - 1/e; chance does."""
        return rulings.multi_greedy(self.claim("multi-greedy"), tables, config)

    def judge_ann_factor(self, tables: Tables, config: Any) -> Finding:
        """No instance falls below alpha; alpha of the whole ranking is caught."""
        return rulings.ann_factor(self.claim("ann-factor"), tables, config)

    def judge_certificate(self, tables: Tables, config: Any) -> Finding:
        """No certified answer differs; one certified by similarity does."""
        return rulings.certificate(self.claim("certificate"), tables, config)

    def judge_stays_specific(self, tables: Tables, config: Any) -> Finding:
        """Precision of the default against the quota of equal spread."""
        return rulings.stays_specific(self.claim("stays-specific"), tables, config)

    def judge_raw_cosine_stays_specific(self, tables: Tables, config: Any) -> Finding:
        """Precision without contrast against the quota of equal spread."""
        return rulings.raw_cosine_stays_specific(self.claim("raw-cosine-stays-specific"), tables, config)

    def judge_contrast_pays(self, tables: Tables, config: Any) -> Finding:
        """Precision of the default against raw cosine of equal spread."""
        return rulings.stays_specific(self.claim("contrast-pays"), tables, config)

    def judge_broad_diverse(self, tables: Tables, config: Any) -> Finding:
        """Spread on broad queries against top-k and dealt labels."""
        return rulings.broad_diverse(self.claim("broad-diverse"), tables, config)

    def judge_front_sentences(self, tables: Tables, config: Any) -> Finding:
        """Spread at equal relevance, sentences."""
        return rulings.front(self.claim("front-sentences"), tables, config, data="sentences")

    def judge_front_clusters(self, tables: Tables, config: Any) -> Finding:
        """Spread at equal relevance, attributes that are clusters."""
        return rulings.front(self.claim("front-clusters"), tables, config, data="clusters")

    def judge_front_skewed(self, tables: Tables, config: Any) -> Finding:
        """Spread at equal relevance, attributes of unequal size."""
        return rulings.front(self.claim("front-skewed"), tables, config, data="skewed")

    def judge_p_relevance(self, tables: Tables, config: Any) -> Finding:
        """Rank correlation of p with relevance against permuted exponents."""
        return rulings.trend(self.claim("p-relevance"), tables, config, reading="rho_ratio")

    def judge_p_spread(self, tables: Tables, config: Any) -> Finding:
        """Rank correlation of p with entropy against permuted exponents."""
        return rulings.trend(self.claim("p-spread"), tables, config, reading="rho_entropy")

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """The figures, controls beside the treatment."""
        from gnomon.retrieval.welfare_neighbors.figures import charts

        return charts(tables, findings)


def _with_queries(rows: pd.DataFrame, queries: Any) -> pd.DataFrame:
    """The rows with the family, search and kind of their query."""
    asked = queries[["family", "search", "kind"]]
    return rows.join(asked, on="query")


def _counts(pools: Any, chosen: np.ndarray) -> np.ndarray:
    return attribute_counts(pools.attributes, chosen, pools.count)
