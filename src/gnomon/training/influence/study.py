"""The study: does influence from one run find wrong labels and poison, survive the seed, and predict retraining?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field
from sklearn.metrics import roc_auc_score

from gnomon.evidence import Claim, Finding
from gnomon.models.load import load, weights_id
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Tables, Unit, UnitRun
from gnomon.training.influence import judgements
from gnomon.training.influence.digit_runs import (
    COMPLETE,
    GROUP,
    DigitTask,
    as_masks,
    digit_task,
    graded_groups,
    query_scores,
    removal_sets,
    retrain,
    self_scores,
    with_shuffled_labels,
)
from gnomon.training.influence.poison import poison_distances, pretrained_poisoned_scores, tiny_poisoned_scores

QUICK = (
    "mislabel-detection",
    "mislabel-advantage",
    "seed-stability",
    "helpful-removal",
    "harmful-removal",
    "poison-detection",
)
RETRAINED = {"helpful-removal", "harmful-removal", "calibrated-direction", "calibrated-scale"}
#: Of the examples, one in so many is left out for a trade-off curve: few enough that the runs can hardly be told apart,
#: as curves of well separated runs are all alike.
CURVE_SHARE = 100
SCORES = {"exact": "exact", "tracin": "tracin", "mean_loss": "mean-loss", "grad_norm": "gradient-norm"}


class Influence(Study):
    """Which training examples mattered, beyond what another seed would have changed?"""

    name = "influence"
    title = "Influence of training examples from one run, against its null"
    wing = "training"
    paper = Paper(
        "f-INE: A Hypothesis Testing Framework for Estimating Influence under Training Randomness",
        "Panda, Tarsadiya, Sourav, Prathosh & Karimireddy",
        arxiv="2510.10510",
    )
    claims = (
        Claim(
            "mislabel-detection",
            "Self-influence from one run finds wrong labels",
            kind="contrast",
            statistic="AUROC of wrong labels",
            controls=("shuffled-labels",),
            unit="split and seed",
            smallest=0.1,
            paper_ref="mislabelled MNIST",
        ),
        Claim(
            "mislabel-advantage",
            "Self-influence finds wrong labels better than the plain scores of the same run",
            kind="contrast",
            statistic="AUROC of wrong labels",
            controls=("mean-loss", "tracin"),
            unit="split and seed",
            smallest=0.002,
            paper_ref="mislabelled MNIST",
            paper_value="better than baselines",
        ),
        Claim(
            "seed-stability",
            "The examples called most harmful change less from seed to seed than those of other scores of the same run",
            kind="contrast",
            statistic="mean overlap (Jaccard) of the lowest-ranked examples over pairs of runs",
            controls=("tracin", "last-checkpoint", "trak"),
            unit="run",
            smallest=0.02,
            paper_ref="consistency over runs",
            paper_value="more consistent than TracIn, influence functions and TRAK",
        ),
        Claim(
            "helpful-removal",
            "Retraining without the examples called most helpful costs more than without others",
            kind="contrast",
            statistic="rise of the query loss over retraining with all examples",
            controls=("random", "loss-matched"),
            unit="scored run",
            paper_ref="removal",
        ),
        Claim(
            "harmful-removal",
            "Retraining without the examples called most harmful gains more than without others",
            kind="contrast",
            statistic="rise of the query loss over retraining with all examples",
            controls=("random", "highest-loss"),
            unit="scored run",
            expect="less",
            paper_ref="removal",
        ),
        Claim(
            "calibrated-direction",
            "Groups with the larger score separate runs with and without them more, with the right sign",
            kind="contrast",
            statistic="slope of retrained separation on mu_run",
            controls=("permuted-groups",),
            unit="scored run",
            paper_ref="definition of influence",
        ),
        Claim(
            "calibrated-scale",
            "mu_run is the separation that retraining finds, within a factor of three",
            kind="equivalence",
            statistic="log10 of the slope of retrained separation on mu_run",
            controls=("slope-one",),
            unit="scored run",
            margin=float(np.log10(3)),
            paper_ref="definition of influence",
        ),
        Claim(
            "gaussian-curve",
            "The trade-off curve between runs with and without a group is Gaussian",
            kind="equivalence",
            statistic="area under the trade-off curve of the query loss",
            controls=("gaussian-without-helpful", "gaussian-without-harmful"),
            unit="retrained run",
            margin=0.03,
            paper_ref="Gaussian limit",
        ),
        Claim(
            "poison-detection",
            "Influence on a poisoned answer finds the poison, and influence on another subject's answer does not",
            kind="contrast",
            statistic="mean score of the poison in standard deviations of clean examples' scores",
            controls=("unrelated-query", "random-direction", "clean-twins"),
            unit="world",
            smallest=0.5,
            paper_ref="poisoned instruction tuning",
        ),
        Claim(
            "poison-in-pretrained",
            "Influence finds the poison of a pretrained decoder's fine-tuning, too, and by its own query only",
            kind="contrast",
            statistic="mean score of the poison in standard deviations of clean examples' scores",
            controls=("unrelated-query", "random-direction", "clean-twins"),
            unit="world",
            smallest=0.5,
            paper_ref="poisoned instruction tuning",
            paper_value="found in Llama-3.1-8B",
        ),
    )

    class Config(StudyConfig):
        """Sizes; every budget is in optimiser steps."""

        seeds: int = Field(10, ge=5, description="Splits, scored runs and poisoned worlds: the units of analysis.")
        examples: int = Field(1000, ge=100, le=1300, description="Digits to train on.")
        flipped: int = Field(100, ge=10, description="Of these, with a wrong label.")
        steps: int = Field(600, ge=20, description="Steps of the runs that look for wrong labels.")
        scored_steps: int = Field(200, ge=20, description="Steps of scored runs, and of every retraining.")
        every: int = Field(5, ge=1, description="Steps between observations of a scored run.")
        architectures: tuple[str, ...] = Field(("mlp",), description="Nets that look for wrong labels: mlp, conv.")
        groups: int = Field(20, ge=20, description="Graded groups that are left out in turn; none in quick.")
        removed: tuple[int, ...] = Field((), description="Further sizes of the ends of the ranking to leave out.")
        retrained: int = Field(8, ge=2, description="Retrainings a scored run and set left out.")
        curve_runs: int = Field(200, ge=20, description="Retrainings a side of the trade-off curves.")
        poison_steps: int = Field(300, ge=20, description="Steps of the decoders that are poisoned.")
        model: str = Field("", description="A pretrained decoder to poison, too; none in quick.")
        presets: ClassVar = {
            "quick": {"claims": QUICK, "seeds": 8, "retrained": 4},
            "full": {"architectures": ("mlp", "conv"), "curve_runs": 600, "model": "smollm2", "removed": (25, 50, 200)},
        }

    def units(self, config: Any) -> Iterator[Unit]:
        """What the claims to be decided need: runs that look for wrong labels, scored runs, retrainings, poison."""
        decided = set(config.claims) or {claim.name for claim in self.claims}
        task = {"examples": config.examples, "flipped": config.flipped}
        if decided & {"mislabel-detection", "mislabel-advantage"}:
            for seed in range(config.seeds):
                for architecture in config.architectures:
                    for arm in ("treatment", "shuffled-labels"):
                        params = {**task, "seed": seed, "arm": arm, "architecture": architecture, "steps": config.steps}
                        yield Unit("mislabel", params, seconds=1.0 if architecture == "mlp" else 4.0)
        if decided & {"seed-stability", *RETRAINED, "gaussian-curve"}:
            yield from self._scored_units(config, decided, task)
        if "poison-detection" in decided:
            for seed in range(config.seeds):
                world = {"subjects": 20, "each": 20, "poison": 6}
                yield Unit("poison", {**world, "seed": seed, "steps": config.poison_steps, "observed": 8}, seconds=5.0)
        if "poison-in-pretrained" in decided and config.model:
            model = {"model": config.model, "weights": weights_id(config.model)}
            for seed in range(config.seeds):
                world = {"subjects": 20, "each": 8, "poison": 6, "seed": seed, "steps": 150, "observed": 8}
                yield Unit("pretrained", {**world, **model}, seconds=70.0)

    def _scored_units(self, config: Any, decided: set[str], task: dict[str, int]) -> Iterator[Unit]:
        scored = [
            Unit("train", {**task, "seed": seed, "steps": config.scored_steps, "every": config.every}, seconds=1.0)
            for seed in range(config.seeds)
        ]
        yield from scored
        groups = config.groups if decided & {"calibrated-direction", "calibrated-scale"} else 0
        for unit in scored if decided & RETRAINED else ():
            params = {**unit.params, "groups": groups, "runs": config.retrained, "other_sizes": list(config.removed)}
            arms = groups + 6 + 3 * len(config.removed)
            yield Unit("retrain", params, needs=(unit,), seconds=0.022 * arms * config.retrained)
        for left_out in (COMPLETE, "without-helpful", "without-harmful") if "gaussian-curve" in decided else ():
            params = {**scored[0].params, "set": left_out, "runs": config.curve_runs}
            yield Unit("curve", params, needs=(scored[0],), seconds=0.02 * config.curve_runs)

    def measure_mislabel(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Self-influence of every digit of one split, and how well each score finds the wrong labels."""
        at = unit.params
        task = digit_task(run.rng("split", at["seed"]), examples=at["examples"], flipped=at["flipped"])
        if at["arm"] == "shuffled-labels":
            task = with_shuffled_labels(task, run.rng("shuffled-labels", at["seed"]))
        training = {"architecture": at["architecture"], "steps": at["steps"], "batch_size": 50, "lr": 0.1}
        scores = self_scores(task, seed=_seed(run, "net", at["seed"]), every=max(1, at["steps"] // 30), **training)
        rows = []
        for column, name in SCORES.items():
            top = np.argsort(-scores[column].to_numpy(), kind="stable")[: at["flipped"]]
            area = roc_auc_score(scores["flipped"], scores[column])
            found = scores["flipped"].to_numpy()[top]
            rows.append({"score": name, "auc": float(area), "precision": float(found.mean())})
        return {"scores": scores, "areas": pd.DataFrame(rows)}

    def measure_train(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Influence of every digit on the query loss; all runs share the data, seeds differ in start and order."""
        at = unit.params
        training = {"architecture": "mlp", "steps": at["steps"], "batch_size": 50, "lr": 0.1}
        seed = _seed(run, "scored", at["seed"])
        scores, wrong = query_scores(_shared_task(at, run), seed=seed, every=at["every"], **training)
        return {"scores": scores, "wrong": wrong}

    def measure_retrain(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Query loss after retraining without each set of one scored run."""
        at = unit.params
        scores = run.need(unit.needs[0]).tables["train.scores"]
        sets = removal_sets(scores, at["flipped"], run.rng("random-set", at["seed"]), other_sizes=at["other_sizes"])
        for number, members in enumerate(
            graded_groups(scores["exact"].to_numpy(), at["groups"]) if at["groups"] else []
        ):
            sets[f"{GROUP}{number:02d}"] = members
        masks = np.stack([as_masks(members[None], len(scores))[0] for members in sets.values()])
        # The same seeds in every arm: what is left out is all that differs.
        seeds = run.rng("retrain", at["seed"]).integers(2**31, size=at["runs"]).tolist()
        losses = retrain(
            _shared_task(at, run),
            np.repeat(masks, len(seeds), axis=0),
            seeds * len(sets),
            steps=at["steps"],
            batch_size=50,
            lr=0.1,
        )
        # Predicted: what leaving the set out does to the mean of the rest is part of its score.
        rate = scores["exact"].to_numpy()
        predicted = [rate[members].sum() * len(rate) / (len(rate) - len(members)) for members in sets.values()]
        return pd.DataFrame(
            {
                "set": np.repeat(list(sets), len(seeds)),
                "run": list(range(len(seeds))) * len(sets),
                "loss": losses,
                "mu_run": np.repeat(predicted, len(seeds)),
            }
        )

    def measure_curve(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Query loss of many retrainings without one group of the first scored run."""
        at = unit.params
        scores = run.need(unit.needs[0]).tables["train.scores"]
        order = np.argsort(scores["exact"].to_numpy(), kind="stable")
        size = len(order) // CURVE_SHARE
        members = {COMPLETE: order[:0], "without-helpful": order[-size:], "without-harmful": order[:size]}
        mask = as_masks(members[at["set"]][None], len(scores))
        seeds = run.rng("curve", at["set"]).integers(2**31, size=at["runs"]).tolist()
        losses = retrain(
            _shared_task(at, run), np.repeat(mask, len(seeds), axis=0), seeds, steps=at["steps"], batch_size=50, lr=0.1
        )
        return pd.DataFrame({"run": range(len(seeds)), "loss": losses})

    def measure_poison(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """Scores of all instructions of one poisoned world, and how far the poison stands out."""
        at = {name: value for name, value in unit.params.items() if name != "seed"}
        world = unit.params["seed"]
        scores = tiny_poisoned_scores(run.rng("world", world), seed=_seed(run, "decoder", world), **at)
        return {"scores": scores, "distance": poison_distances(scores, run.rng("lots", world))}

    def measure_pretrained(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """The same for the last block of a pretrained decoder; and what the poison did to each query's loss."""
        at = {name: value for name, value in unit.params.items() if name not in ("seed", "model", "weights")}
        world = unit.params["seed"]
        loaded = load(unit.params["model"])
        run.note(unit.params["model"], loaded.provenance.to_dict())
        scores, effect = pretrained_poisoned_scores(
            loaded.model, loaded.tokenizer, run.rng("cities", world), seed=_seed(run, "pretrained", world), **at
        )
        return {"scores": scores, "distance": poison_distances(scores, run.rng("lots", world)), "effect": effect}

    def judge_mislabel_detection(self, tables: Tables, config: Any) -> Finding:
        """Do wrong labels stand out, and not where labels carry nothing?"""
        return judgements.mislabel_detection(
            self.claim("mislabel-detection"), tables["mislabel.areas"], scope=_digit_scope(config, config.steps)
        )

    def judge_mislabel_advantage(self, tables: Tables, config: Any) -> Finding:
        """Better than the mean loss and TracIn of the same run?"""
        return judgements.mislabel_advantage(
            self.claim("mislabel-advantage"), tables["mislabel.areas"], scope=_digit_scope(config, config.steps)
        )

    def judge_seed_stability(self, tables: Tables, config: Any) -> Finding:
        """Do seeds agree more on this score than on others?"""
        return judgements.seed_stability(
            self.claim("seed-stability"),
            tables["train.scores"],
            k=config.flipped,
            scope=f"{_digit_scope(config, config.scored_steps)}; one data set, start and order random",
        )

    def judge_helpful_removal(self, tables: Tables, config: Any) -> Finding:
        """Does it cost to leave the helpful ones out?"""
        return self._removal("helpful-removal", tables, config)

    def judge_harmful_removal(self, tables: Tables, config: Any) -> Finding:
        """Does it gain to leave the harmful ones out?"""
        return self._removal("harmful-removal", tables, config)

    def judge_calibrated_direction(self, tables: Tables, config: Any) -> Finding:
        """Does the score order groups as retraining does?"""
        return judgements.calibrated_direction(
            self.claim("calibrated-direction"), tables["retrain"], scope=_retrain_scope(config)
        )

    def judge_calibrated_scale(self, tables: Tables, config: Any) -> Finding:
        """Is the score's unit that of retraining?"""
        return judgements.calibrated_scale(
            self.claim("calibrated-scale"), tables["retrain"], scope=_retrain_scope(config)
        )

    def judge_gaussian_curve(self, tables: Tables, config: Any) -> Finding:
        """Is one number enough to say how well runs can be told apart?"""
        scope = (
            f"{config.curve_runs} retrainings a side, groups of {config.examples // CURVE_SHARE} from one scored run"
        )
        return judgements.gaussian_curve(self.claim("gaussian-curve"), tables["curve"], scope=scope)

    def judge_poison_detection(self, tables: Tables, config: Any) -> Finding:
        """Is the poison found, and by its own query alone?"""
        scope = f"two-layer decoders, {config.poison_steps} steps, 20 subjects, 6 poisons in 412 instructions"
        return judgements.poison_detection(self.claim("poison-detection"), tables["poison.distance"], scope=scope)

    def judge_poison_in_pretrained(self, tables: Tables, config: Any) -> Finding:
        """The same, in a model that knew other things before?"""
        scope = f"{config.model}, last block, 150 steps of batch 16, 20 subjects, 6 poisons in 172 instructions"
        claim = self.claim("poison-in-pretrained")
        return judgements.poison_in_pretrained(
            claim, tables["pretrained.distance"], tables["pretrained.effect"], scope=scope
        )

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:
        """ROC with its null band, stability, calibration, trade-off curves, removal, poison."""
        from gnomon.training.influence.figures import charts

        return charts(tables, findings)

    def _removal(self, name: str, tables: Tables, config: Any) -> Finding:
        return judgements.removal(self.claim(name), tables["retrain"], scope=_retrain_scope(config))


def _shared_task(at: Any, run: UnitRun) -> DigitTask:
    return digit_task(run.rng("shared-split"), examples=at["examples"], flipped=at["flipped"])


def _seed(run: UnitRun, *stream: str | int) -> int:
    return int(run.rng(*stream).integers(2**31))


def _digit_scope(config: Any, steps: int) -> str:
    return f"digits, {config.examples} examples, {config.flipped} wrong labels, {steps} steps of batch 50"


def _retrain_scope(config: Any) -> str:
    return (
        f"{_digit_scope(config, config.scored_steps)}; every retraining as many steps, start and order random; "
        f"{config.seeds} scored runs, {config.retrained} retrainings each and set"
    )
