"""The tour: every instrument's preset in turn, one table and one page; a broken instrument does not end it."""

import shutil
from pathlib import Path

import pytest

BROKEN = """
from bagging_study import Bagging


class Broken(Bagging):
    \"""Does an instrument that breaks end the tour?\"""

    name = "broken"

    def measure_fit(self, unit, run):
        raise RuntimeError("broken on purpose")
"""

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.e2e


@pytest.fixture
def two_studies(gnomon):
    """The study of the docs beside one that breaks."""
    (gnomon.site / "broken_study.py").write_text(BROKEN)
    shutil.copy(ROOT / "examples" / "bagging_study.py", gnomon.site)
    information = gnomon.site / "bagging-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: bagging\nVersion: 1.0\n")
    entries = ["bagging = bagging_study:Bagging", "broken = broken_study:Broken"]
    (information / "entry_points.txt").write_text("\n".join(["[gnomon.studies]", *entries]))
    return gnomon


def test_tour_shows_what_held_and_what_broke_on_one_page(two_studies, chromium):
    out, err = two_studies("tour", "broken", "bagging", code=1)
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert rows["bagging"].split()[1:4] == ["1", "-", "-"]
    assert "the run is failed" in rows["broken"]
    assert "Traceback" not in err
    page = two_studies.runs_dir / "tour.html"
    assert f"tour: {page}" in out

    requests, problems = [], []
    tab = chromium.new_page(viewport={"width": 1280, "height": 900})
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("console", lambda message: problems.append(message.text))
    tab.goto(page.as_uri())
    assert tab.locator("article.stop").count() == 2
    assert tab.locator("#bagging figure img").evaluate("image => image.naturalWidth") > 300
    assert "the run is failed" in tab.locator("#broken").inner_text()
    tab.get_by_role("link", name="Read the report of bagging").click()
    assert "bagging" in tab.title().lower()
    tab.set_viewport_size({"width": 360, "height": 800})
    tab.goto(page.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    tab.close()
    assert problems == []
    assert all(url.startswith(("file:", "data:")) for url in requests)


def test_second_tour_measures_nothing_again(two_studies):
    two_studies("tour", "bagging")
    _, err = two_studies("tour", "bagging")
    assert "bagging: 24 units, 24 of them there already" in err


def test_unknown_instrument_or_preset_is_one_line(two_studies):
    _, err = two_studies("tour", "baging", code=2)
    assert err.strip() == "gnomon: no study named 'baging'; nearest is 'bagging'"


def test_options_of_another_backend_are_refused(gnomon):
    _, err = gnomon("run", "tiny-walks", "--gpus-per-unit", "1", code=2)
    assert "--ray-address and --gpus-per-unit are for --backend ray" in err
