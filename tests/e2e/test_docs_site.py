"""The site builds with warnings as errors, from the files that exist, and asks no other host for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?https?://[^\"' >]+")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.e2e
def test_no_page_fetches_anything_from_another_host(site):
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 8
    assert {page: fetched for page, text in pages.items() if (fetched := FETCHED.findall(text))} == {}


@pytest.mark.e2e
def test_every_page_is_reachable_from_the_navigation(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    navigation = start[start.index('<nav class="md-nav md-nav--primary') :]
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert page == "index" or f'href="{page}/"' in navigation, page


@pytest.mark.e2e
def test_the_example_is_on_its_page_and_formulas_are_drawn_by_the_browser(site):
    study = (site / "write-a-study" / "index.html").read_text(encoding="utf-8")
    assert "Bagging" in study
    assert "test_the_judge_is_calibrated" in study
    evidence = (site / "reference" / "evidence" / "index.html").read_text(encoding="utf-8")
    assert "<math" in evidence
    assert "arithmatex" not in evidence
