"""The page: what it says, that it says it as text, and that a real run writes it."""

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser

import altair as alt
import pandas as pd
import pytest

from gnomon.evidence import Claim, Contrast, Estimate, Finding
from gnomon.report.charts import captioned
from gnomon.report.document import inline_scripts
from gnomon.report.elements import table
from gnomon.report.html import content_policy, csv_url, decision_rule, json_block, render, write_report
from gnomon.report.page import EMBEDDED_BYTES, finding_rows
from gnomon.studies.backends import InlineBackend
from gnomon.studies.cache import UnitCache
from gnomon.studies.runner import run_study
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Gated, Unit


class Structure(HTMLParser):
    """Headings and elements of a page, in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.headings, self._open = [], [], [], None
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag in {"h1", "h2"}:
            self._open = tag
            self.headings.append("")

    def handle_endtag(self, tag):
        if tag == self._open:
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.headings[-1] += data


def test_sections_stand_in_the_agreed_order(html, page):
    headings = Structure(html).headings
    assert headings[0] == page.question
    assert headings[1:] == ["Findings", "Charts", "How it was measured", "Provenance", "Raw tables"]


def test_no_text_of_the_run_becomes_markup(html):
    # Drawn images (data:) and the inlined runtime aside, the page has no element that acts.
    attributes = Structure(html).attributes
    assert not [name for _, found in attributes for name in found if name.startswith("on")]
    assert all(found["src"].startswith("data:image/") for tag, found in attributes if tag == "img")
    assert not [found for _, found in attributes if "javascript:" in str(found.get("href", "")).lower()]


def test_policy_allows_exactly_the_scripts_of_the_page(html, page):
    policy = policy_of(html)
    scripts = [text for text in inline_scripts(html) if not text.lstrip().startswith("{")]
    [viewer] = [drawn.element.html for drawn in page.figures if drawn.element and drawn.element.sandboxed]
    expected = {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in [*scripts, *inline_scripts(viewer)]
    }
    assert set(re.search(r"script-src ([^;]*)", policy)[1].split()) == expected
    assert len(expected) == 3
    assert "default-src 'none'" in policy


def policy_of(html):
    return next(found["content"] for tag, found in Structure(html).attributes if tag == "meta" and "content" in found)


def test_a_page_without_charts_runs_no_script(bare_page):
    html = render(bare_page)
    assert "script-src 'none'" in policy_of(html)
    assert "<script" not in html
    assert "The run has no findings yet." in html
    assert len(html) < 150_000


def test_policy_without_scripts():
    assert "script-src 'none'" in content_policy([])


def test_json_in_the_page_cannot_end_its_element_and_reads_back():
    value = {"text": "</script><!-- & \u2028"}
    block = json_block(value)
    assert not re.search("[<>&]", block)
    assert json.loads(block) == value


def test_csv_in_the_page_is_the_table():
    scheme, _, content = csv_url("a,b\nθ,1\n").partition(";base64,")
    assert scheme == "data:text/csv;charset=utf-8"
    assert base64.b64decode(content).decode() == "a,b\nθ,1\n"


def test_half_a_character_does_not_keep_the_page_from_being_written(bare_page):
    assert "a?b" in render(dataclasses.replace(bare_page, question="a\ud800b"))


def test_required_controls_come_first_in_the_claims_order_and_others_are_marked(findings):
    rows = finding_rows(findings[0])
    assert [arm.arm for arm in rows.arms] == ["treatment", "random-init", "resampled", "shuffled"]
    assert [arm.required for arm in rows.arms] == [True, True, True, False]


def test_marks_of_a_finding_share_one_strip(findings):
    rows = finding_rows(findings[0])
    marks = {arm.arm: arm.mark for arm in rows.arms}
    assert 0 < marks["random-init"].low < marks["treatment"].low < marks["treatment"].high < 100
    assert rows.zero is None or 0 <= rows.zero <= 100


def test_infinite_and_missing_numbers_have_a_place_or_none(findings):
    treatment, baseline = finding_rows(findings[1]).arms
    assert treatment.mark.low == 0
    assert baseline.mark.value is None


def test_an_estimate_without_spread_stands_in_the_middle():
    finding = Finding(Claim("c", "s", "contrast", "x", controls=("a",)), effect=Estimate(2, 2, 2))
    assert finding_rows(finding).arms[0].mark.value == 50


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim("c", "s", "exact", "x"), "No instance violates it, and the broken variant is caught."),
        (Claim("c", "s", "contrast", "x", ("a",)), "The interval of the difference lies above 0."),
        (
            Claim("c", "s", "contrast", "x", ("a",), expect="less", margin=0.1, smallest=0.2),
            "The interval of the difference lies below −0.1. The smallest that matters is −0.2.",
        ),
        (
            Claim("c", "s", "equivalence", "x", ("a",), margin=0.05),
            "The difference lies within ±0.05 (two one-sided tests).",
        ),
    ],
)
def test_the_rule_of_a_claim_is_said_in_words(claim, words):
    assert decision_rule(claim) == words


class Coins(Study):
    """Does a loaded coin land heads more often?"""

    name = "coins"
    title = "Loaded coins"
    wing = "test"
    paper = Paper("On coins", "A. Author", arxiv="0000.00000")
    claims = (
        Claim("loaded", "It lands heads more often than a fair one", "contrast", "heads", ("fair",), unit="coin"),
    )

    class Config(StudyConfig):
        tosses: int = 50
        gated: bool = False

    def units(self, config):
        return [Unit("toss", {"coin": coin, "tosses": config.tosses, "gated": config.gated}) for coin in range(8)]

    def measure_toss(self, unit, run):
        if unit.params["gated"]:
            raise Gated("the table is not level, needs a spirit level")
        fair = run.rng("fair", unit.params["coin"]).binomial(unit.params["tosses"], 0.5)
        return pd.DataFrame({"arm": ["treatment", "fair"], "heads": [unit.params["tosses"] * 0.9, fair]})

    def judge_loaded(self, tables, config):
        heads = tables["toss"].pivot_table(index="coin", columns="arm", values="heads") / config.tosses
        gap = (heads["treatment"] - heads["fair"]).mean()
        contrast = Contrast("fair", Estimate(0.5, 0.4, 0.6), Estimate(gap, gap - 0.1, gap + 0.1), 0.004, 8, "sign-flip")
        return Finding(self.claim("loaded"), effect=Estimate(0.9, 0.9, 0.9), contrasts=(contrast,), n=8)

    def charts(self, tables, findings):
        chart = alt.Chart(tables["toss"]).mark_point().encode(x="heads:Q", y="arm:N")
        return {"heads": captioned(chart, "Heads"), "rows": table(tables["toss"], title="Rows")}


class BrokenCharts(Coins):
    """Does a broken chart keep the findings from being read?"""

    def charts(self, tables, findings):
        raise ZeroDivisionError("no <b>axis</b>")


def coin_run(tmp_path, study=None, **config):
    return run_study(
        study or Coins(),
        Coins.Config(**config),
        preset="quick",
        runs_dir=tmp_path / "runs",
        cache=UnitCache(tmp_path / "cache"),
        backend=InlineBackend(),
        report=write_report,
    )


def test_a_real_run_writes_its_report_and_the_files_of_its_charts(tmp_path):
    run = coin_run(tmp_path)
    html = (run.path / "report.html").read_text()
    assert run.errors == []
    assert {path.name for path in (run.path / "charts").iterdir()} == {
        "heads.json",
        "heads.png",
        "heads.svg",
        "rows.html",
    }
    assert "Does a loaded coin land heads more often?" in html
    assert "8 done" in html
    assert run.name in html
    embedded = re.search(r'href="data:text/csv;charset=utf-8;base64,([^"]*)" download="toss.csv"', html)[1]
    assert base64.b64decode(embedded).decode() == run.tables["toss"].to_csv(index=False)


def test_large_tables_are_linked_not_embedded(tmp_path, monkeypatch):
    monkeypatch.setattr("gnomon.report.page.EMBEDDED_BYTES", 100)
    assert EMBEDDED_BYTES > 100_000
    run = coin_run(tmp_path)
    html = (run.path / "report.html").read_text()
    assert "data:text/csv" not in html
    links = re.findall(r'href="(units/[^"]*)"', html)
    assert len(links) == 8
    assert all((run.path / link).exists() for link in links)


def test_a_gated_run_says_why_it_has_neither_verdict_nor_charts(tmp_path):
    html = (coin_run(tmp_path, gated=True).path / "report.html").read_text()
    assert "No charts: 8 of 8 units of stage toss gated: the table is not level" in html
    assert "1 inconclusive" in html
    assert "No unit has left a table." in html


def test_charts_that_fail_leave_the_findings_and_the_error_on_the_page(tmp_path):
    run = coin_run(tmp_path, BrokenCharts())
    html = (run.path / "report.html").read_text()
    assert "ZeroDivisionError: no &lt;b&gt;axis&lt;/b&gt;" in html
    assert "1 supported" in html
    assert any("ZeroDivisionError" in error for error in run.errors)
