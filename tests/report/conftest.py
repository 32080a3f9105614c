"""A fabricated report that is as hostile as a run can get."""

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Claim, Contrast, Estimate, ExactCheck, Finding
from gnomon.report import charts, elements
from gnomon.report.figures import figure
from gnomon.report.html import render
from gnomon.report.page import Page, StageSummary, TableDownload
from gnomon.studies.study import Paper
from gnomon.studies.unit import Shortfall

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'`{{7*7}}${7*7}</title></style>\u202e\x07"
)
LONG = "unbroken" * 80


@pytest.fixture(scope="session")
def hostile():
    return HOSTILE


@pytest.fixture(scope="session")
def findings():
    def claim(name, **fields):
        return Claim(name, f"Statement of {name} {HOSTILE}", **{"kind": "contrast", "statistic": "range", **fields})

    def contrast(control, estimate, difference, p=0.001, n=30):
        return Contrast(control, Estimate(*estimate), Estimate(*difference), p, n, "exact sign-flip")

    return [
        Finding(
            claim("learned-spread", controls=("random-init", "resampled"), paper_value=HOSTILE, paper_ref="Table 2"),
            effect=Estimate(0.42, 0.36, 0.48),
            contrasts=(
                contrast("resampled", (0.21, 0.15, 0.27), (0.21, 0.1, 0.3)),
                contrast("random-init", (0.08, 0.05, 0.11), (0.34, 0.27, 0.41)),
                contrast("shuffled", (0.3, 0.2, 0.4), (0.12, -0.1, 0.3), p=0.2),
            ),
            n=30,
            p_adjusted=0.003,
            scope=LONG,
            reading=HOSTILE,
        ),
        Finding(
            claim("open-ended", controls=("baseline",)),
            effect=Estimate(-0.2, -math.inf, 0.1),
            contrasts=(contrast("baseline", (math.nan, math.nan, math.nan), (math.nan, math.nan, math.nan), math.nan),),
            n=12,
        ),
        Finding(
            claim("intact", kind="equivalence", controls=("baseline",), margin=0.05),
            effect=Estimate(0.31, 0.27, 0.36),
            contrasts=(contrast("baseline", (0.04, 0.01, 0.07), (0.27, 0.22, 0.33), p=0.98),),
            n=40,
            p_adjusted=0.98,
        ),
        Finding(claim("identity", kind="exact"), exact=ExactCheck(240, 0, 20, 17, HOSTILE), n=240),
        Finding(claim("not-asked", controls=("baseline",)), withheld=f"not decided by this preset {HOSTILE}"),
    ]


@dataclass
class ChartTables:
    """One small table for every function of the kit."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def curves(self, x, *arms):
        return pd.concat(
            pd.DataFrame({x: [1, 2, 4, 8], "value": level, "low": level - 0.1, "high": level + 0.1, "arm": arm})
            for level, arm in zip((0.8, 0.3, 0.2), arms, strict=False)
        )

    def heads(self):
        layers, heads = np.meshgrid(range(6), range(4), indexing="ij")
        return pd.concat(
            pd.DataFrame(
                {"layer": layers.ravel(), "head": heads.ravel(), "value": self.random.normal(0, s, 24), "arm": arm}
            )
            for arm, s in (("random-init", 0.1), ("treatment", 1.0))
        )

    def rates(self):
        rate = np.linspace(0, 1, 20)
        return pd.concat(
            pd.DataFrame({"false_positive_rate": rate, "true_positive_rate": rate**power, "arm": arm})
            for arm, power in (("treatment", 0.3), ("baseline", 0.9))
        )


@pytest.fixture
def tables():
    return ChartTables()


@pytest.fixture(scope="session")
def every_chart(findings):
    tables = ChartTables()
    rate = np.linspace(0, 1, 20)
    dots = tables.heads().assign(x=lambda t: t["value"], y=lambda t: t["value"] ** 2, name=HOSTILE)
    front = dots.assign(front=dots["y"] > 0.5)
    reliability = pd.DataFrame(
        {"predicted": [0.1, 0.5, 0.9], "observed": [0.2, 0.5, 0.7], "low": [0.1, 0.4, 0.6], "high": [0.3, 0.6, 0.8]}
    ).assign(n=[10, 50, 20], arm="treatment")
    return {
        "forest": charts.forest(findings, caption=HOSTILE),
        "null-histogram": charts.null_histogram(
            pd.DataFrame({"value": tables.random.normal(size=500)}), 3.1, title="Null", statistic="range (bits)"
        ),
        "head-map": charts.head_map(tables.heads(), title=f"Heads {HOSTILE}", value_title="balance", midpoint=0),
        "dose": charts.dose_response(
            tables.curves("dose", "treatment", "random-init"),
            x="dose",
            title="Dose",
            x_title="heads restored",
            y_title="accuracy",
            log_x=True,
        ),
        "learning": charts.learning_curve(
            tables.curves("step", "treatment", "shuffled"), title="Loss", y_title="loss (nats)"
        ),
        "roc": charts.roc(
            tables.rates(),
            title="Detection",
            null=pd.DataFrame({"false_positive_rate": rate, "low": rate * 0.9, "high": np.minimum(rate * 1.1, 1)}),
            null_name="permutation, 95 % band",
        ),
        "reliability": charts.reliability(reliability, title="Calibration"),
        "front": charts.front(front, x="x", y="y", title="Front", x_title="seconds", y_title="recall", label="name"),
        "plane": charts.scatter_panels(
            dots,
            x="x",
            y="y",
            title="Plane",
            x_title="symbolic",
            y_title="positional",
            color="layer",
            tooltip=["name"],
            curve=pd.DataFrame({"x": rate, "y": 1 - rate**2}),
        ),
        "bars": charts.bars(
            tables.curves("task", "treatment", "baseline").assign(task=HOSTILE[:40]),
            category="task",
            title="Tasks",
            x_title="accuracy",
        ),
    }


@pytest.fixture(scope="session")
def every_element():
    viewer = (
        "<!doctype html><html lang='en'><title>replay</title><body><p id='p'>still</p>"
        "<script>document.getElementById('p').textContent = 'script ran';"
        "try { parent.document.title = 'hacked'; } catch (error) { document.title = 'kept out'; }</script>"
    )
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 30"><script>window.hacked=3</script>'
        '<circle cx="15" cy="15" r="9" fill="#2a78b8" onclick="window.hacked=4"/><text x="30" y="20">text</text></svg>'
    )
    pixels = np.linspace(0, 1, 64).reshape(8, 8)
    return {
        "cards": elements.text_cards(
            [elements.Passage(["the", HOSTILE, " end"], [0.0, 0.9, -0.2], HOSTILE)], title="Contexts"
        ),
        "gallery": elements.gallery(
            [elements.Picture(elements.image_png(pixels, scale=4), alt=HOSTILE, label=HOSTILE)], title="Digits"
        ),
        "table": elements.table(pd.DataFrame({HOSTILE: [HOSTILE, None], "x": [math.nan, -2.5]}), title=HOSTILE),
        "drawing": elements.drawing(svg, title="Drawing", description=f"a circle {HOSTILE}"),
        "viewer": elements.explorable(viewer, title="Replay", description="a replay", height=120),
    }


@pytest.fixture(scope="session")
def page(findings, every_chart, every_element):
    return Page(
        study="rope-heads",
        title=f"Rope heads {HOSTILE}",
        question=f"Is it learned? {HOSTILE}",
        paper=Paper(HOSTILE, LONG, url='javascript:window.hacked="paper"'),
        findings=findings,
        figures=[figure(name, drawn) for name, drawn in (every_chart | every_element).items()],
        run="2026-12-02T10-14-09_rope-heads_quick_1f3a",
        preset="quick",
        started="2026-12-02T10:14:09+00:00",
        notices=[HOSTILE],
        config={"model": HOSTILE, "prompts": 16, "claims": []},
        stages=[StageSummary("lm", 24, {"done": 23, "failed": 1}, 41.2)],
        shortfalls=[Shortfall("lm", f"lm(arm={HOSTILE})", "failed", HOSTILE)] * 30,
        provenance={"versions": {HOSTILE: LONG}, "machine": {"cores": 2}},
        downloads=[
            TableDownload("lm", 2, (HOSTILE, "value"), f'a,b\n"{HOSTILE}",1\n', ("units/a.parquet",)),
            TableDownload("toy", 10**6, ("step",), None, tuple(f"units/toy {n}.parquet" for n in range(130))),
            TableDownload("one", 10**6, ("step",), None, ("units/one.parquet",)),
        ],
    )


@pytest.fixture(scope="session")
def html(page):
    """The hostile page, rendered."""
    return render(page)


@pytest.fixture(scope="session")
def bare_page():
    return Page("rope-heads", "Rope heads", "Is it learned?", Paper("A paper", "An author"), findings=[])
