"""Breiman's bagging, put to the test on handwritten digits: does it help, and is it the resampling that helps?"""

from typing import ClassVar

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier
from sklearn.tree import DecisionTreeClassifier

from gnomon.evidence import Claim, Finding, contrasts, intervals
from gnomon.report.charts import bars, forest
from gnomon.studies.runner import run_study
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Unit


class Bagging(Study):
    """Does bagging make a decision tree more accurate?"""

    name = "bagging"
    title = "Bagging against a single tree, and against averaging without resampling"
    wing = "learners"
    paper = Paper("Bagging Predictors", "L. Breiman", venue="Machine Learning 24 (1996)")
    claims = (
        Claim(
            "lift",
            "Trees grown on bootstrap samples, voting together, beat one tree on data they have not seen",
            kind="contrast",
            statistic="accuracy on held-out digits",
            controls=("single-tree", "no-resampling"),
            unit="block",
            smallest=0.02,
        ),
    )

    class Config(StudyConfig):
        blocks: int = 8
        trees: int = 20
        presets: ClassVar = {"quick": {}, "full": {"blocks": 12, "trees": 50}}

    def units(self, config):
        arms = {"treatment": (config.trees, True), "single-tree": (1, False), "no-resampling": (config.trees, False)}
        for block in range(config.blocks):
            for arm, (trees, resample) in arms.items():
                fit = {"arm": arm, "trees": trees, "resample": resample}
                yield Unit("fit", {**fit, "block": block, "blocks": config.blocks}, seconds=0.2)

    def measure_fit(self, unit, run):
        images, digits = load_digits(return_X_y=True)
        # Every unit names the same stream, so that blocks are disjoint and the arms of a block share its images.
        shuffled = run.rng("blocks").permutation(len(images))
        block = shuffled[unit.params["block"] :: unit.params["blocks"]]
        train, test = block[: len(block) // 2], block[len(block) // 2 :]
        trees = BaggingClassifier(
            DecisionTreeClassifier(),
            n_estimators=unit.params["trees"],
            bootstrap=unit.params["resample"],
            random_state=unit.params["block"],
        ).fit(images[train], digits[train])
        return pd.DataFrame({"accuracy": [trees.score(images[test], digits[test])]})

    def judge_lift(self, tables, config):
        arms = contrasts.paired_arms(tables["fit"], "accuracy", unit="block")
        claim, bagged = self.claim("lift"), arms["treatment"]
        return Finding(
            claim,
            effect=intervals.mean(bagged),
            contrasts=tuple(contrasts.paired(control, bagged, arms[control]) for control in claim.controls),
            n=len(bagged),
            scope=f"scikit-learn digits, {config.blocks} disjoint blocks, {config.trees} trees",
        )

    def charts(self, tables, findings):
        blocks = tables["fit"].rename(columns={"accuracy": "value"})
        return {
            "accuracy": forest(findings, title="Accuracy on unseen digits"),
            "blocks": bars(
                blocks, category="block", title="The same, block by block", x_title="accuracy", category_title="block"
            ),
        }


if __name__ == "__main__":
    run = run_study(Bagging(), Bagging.Config.preset("quick"), preset="quick")
    for finding in run.findings:
        print(f"{finding.claim.name}: {finding.verdict} ({finding.reason})")
        print(f"  treatment      {finding.effect}")
        for contrast in finding.contrasts:
            print(
                f"  {contrast.control:<14} {contrast.estimate}, difference {contrast.difference}, p = {contrast.p:.3f}"
            )
    print(run.path)
