"""The report in a real Chromium: no request, no console message, nothing that hostile text could do."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe

from gnomon.report.html import render

pytestmark = pytest.mark.e2e

SIZES = [(360, "light"), (360, "dark"), (1600, "light"), (1600, "dark")]
LOCAL = ("file:", "data:", "blob:", "about:")


class Visit:
    """An open page with everything it said and asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.problems = []
        self.tab.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.context.route(lambda url: not url.startswith(LOCAL), self._refuse)
        self.tab.goto(path.as_uri())

    def _refuse(self, route):
        self.problems.append(f"request: {route.request.url}")
        route.abort()

    def drawn(self):
        self.tab.wait_for_selector("html[data-charts=drawn]", state="attached")
        return self.tab


@pytest.fixture(scope="module")
def report(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def visit(chromium, report):
    visits = []

    def open_page(path=report, **options):
        visits.append(Visit(chromium, path, **options))
        return visits[-1]

    yield open_page
    for opened in visits:
        opened.context.close()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_opens_without_request_or_console_message_and_fits_the_window(visit, width, scheme):
    opened = visit(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = opened.drawn()
    assert opened.problems == []
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("figure .chart svg").count() == 10
    # Every chart fits its card; none needs scrolling even on a phone.
    assert (
        tab.evaluate(
            "[...document.querySelectorAll('.chart')].filter(c => c.scrollWidth > c.clientWidth + 1)"
            ".map(c => c.closest('figure').id)"
        )
        == []
    )


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1600, "dark")])
def test_axe_finds_no_violation(visit, width, scheme):
    tab = visit(viewport={"width": width, "height": 900}, color_scheme=scheme).drawn()
    found = Axe().run(tab).response["violations"]
    assert [(violation["id"], [node["html"][:200] for node in violation["nodes"]]) for violation in found] == []


def test_charts_take_the_pages_colours_in_the_dark(visit):
    tab = visit(color_scheme="dark").drawn()
    ink = tab.evaluate("getComputedStyle(document.querySelector('#figure-dose svg text[fill=\"#1c2733\"]')).fill")
    page_ink = tab.evaluate("getComputedStyle(document.body).color")
    assert ink == page_ink == "rgb(230, 235, 240)"
    colours = tab.evaluate(
        "[...document.querySelectorAll('#figure-dose svg [fill=\"#2a78b8\"]')].map(e => getComputedStyle(e).fill)"
    )
    assert set(colours) == {"rgb(42, 120, 184)"}


def test_hovering_shows_the_numbers(visit):
    opened = visit(viewport={"width": 1600, "height": 900})
    tab = opened.drawn()
    tab.locator("#figure-dose path[aria-roledescription='point']").first.hover(force=True)
    tooltip = tab.locator("#vg-tooltip-element")
    tooltip.wait_for(state="visible")
    assert "95 % from" in tooltip.inner_text()
    assert opened.problems == []


def test_downloads_are_the_chart_with_title_and_light_background(visit, page, tmp_path):
    tab = visit(accept_downloads=True, color_scheme="dark").drawn()
    [dose] = [drawn for drawn in page.figures if drawn.name == "dose"]
    content = {}
    for kind in ("png", "svg", "json"):
        with tab.expect_download() as download:
            tab.locator(f"#figure-dose a[download='dose.{kind}']").click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        content[kind] = path.read_bytes()
    assert content["png"] == dose.png
    assert json.loads(content["json"]) == dose.specification
    svg = ElementTree.fromstring(content["svg"])
    assert "Dose" in "".join(svg.itertext())
    assert b"#ffffff" in content["svg"]


def test_raw_table_downloads_as_csv(visit, page):
    tab = visit(accept_downloads=True).drawn()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "lm.csv"
    assert download.value.path().read_text(encoding="utf-8") == page.downloads[0].csv


def test_a_viewer_runs_its_script_but_cannot_touch_the_page(visit):
    opened = visit()
    tab = opened.drawn()
    [frame] = [frame for frame in tab.frames if frame.parent_frame]
    assert frame.locator("#p").inner_text() == "script ran"
    assert frame.title() == "kept out"
    assert "hacked" not in tab.title().partition("<")[0]


def test_direction_overrides_end_with_the_text_that_contains_them(visit):
    tab = visit(viewport={"width": 1600, "height": 900}).drawn()
    # "(Table 2)" follows a value that switches to right-to-left; it still runs from left to right.
    left_of = """index => {
        const text = document.querySelector('#claim-learned-spread dd .quiet').firstChild;
        const range = document.createRange();
        range.setStart(text, index); range.setEnd(text, index + 1);
        return range.getBoundingClientRect().left;
    }"""
    assert tab.evaluate(left_of, 0) < tab.evaluate(left_of, len("(Table 2"))


def test_without_javascript_the_still_charts_and_their_files_are_there(visit):
    tab = visit(java_script_enabled=False).tab
    stills = tab.locator("figure .chart img")
    assert stills.count() == 10
    assert stills.first.get_attribute("src").startswith("data:image/png")
    assert tab.locator("#figure-dose a[download='dose.png']").get_attribute("href") == "charts/dose.png"


def test_keyboard_reaches_the_content_and_the_first_section(visit):
    tab = visit().drawn()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to content"
    tab.keyboard.press("Enter")
    assert tab.url.endswith("#main")
    tab.get_by_role("link", name="Provenance").focus()
    tab.keyboard.press("Enter")
    assert tab.url.endswith("#provenance")


def test_charts_follow_the_width_of_the_window(visit):
    tab = visit(viewport={"width": 1600, "height": 900}).drawn()
    wide = tab.locator("#figure-learning svg").bounding_box()["width"]
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.wait_for_selector(f"#figure-learning svg:not([width='{wide:.0f}'])")
    assert tab.locator("#figure-learning svg").bounding_box()["width"] < wide - 50
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400


def test_prints_in_light_colours_without_controls(visit, tmp_path):
    opened = visit(color_scheme="dark")
    tab = opened.drawn()
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.get_by_role("navigation").is_visible()
    assert not tab.locator(".downloads").first.is_visible()
    pdf = tab.pdf(path=tmp_path / "report.pdf", format="A4")
    assert pdf.startswith(b"%PDF-")
    assert 3 <= pdf.count(b"/Type /Page\n") <= 40
    assert opened.problems == []


def test_a_page_without_findings_or_charts_opens(visit, bare_page, tmp_path):
    path = tmp_path / "bare.html"
    path.write_text(render(bare_page), encoding="utf-8")
    opened = visit(path)
    assert opened.tab.get_by_role("heading", level=1).inner_text() == "Is it learned?"
    assert opened.problems == []
