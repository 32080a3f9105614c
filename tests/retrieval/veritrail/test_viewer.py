"""The page of a trail: its data, its size, and what a reader sees and can do in a browser."""

import json
import re
from dataclasses import replace

import pytest

from gnomon.report.document import outside_references
from gnomon.retrieval.veritrail import Claim, Dropped, Node, OracleJudge, Process, SentenceIndex, verify
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.viewer import page, page_data, write_page

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> {{ 7*7 }} \u2028"
)


def small():
    """Two sources, two summaries, an answer; a claim that holds, one that was invented, one that nobody can settle."""
    process = Process(
        [
            Node("report-a", "Corvus opened a plant in Kiel. It hired 300 people."),
            Node("report-b", f"Marlowe closed its plant. {HOSTILE}"),
            Node("summary-a", "Corvus opened a plant in Kiel. It hired 400 people.", meta={"title": "Summary of A"}),
            Node("summary-b", "Marlowe closed its plant."),
            Node("answer", "Corvus opened a plant in Kiel. It hired 400 people. Marlowe closed its plant. So be it."),
        ],
        [("report-a", "summary-a"), ("report-b", "summary-b"), ("summary-a", "answer"), ("summary-b", "answer")],
        question="What happened to the plants?",
    )
    index = SentenceIndex(process)
    claims = [
        Claim(f"c{n}", sentence.text, sentence.id, sentence.span) for n, sentence in enumerate(index.of("answer")[:3])
    ]
    judge = OracleJudge(
        {"c0": {"summary-a#0", "report-a#0"}, "c1": {"summary-a#1"}, "c2": {"summary-b#0", "report-b#0"}}
    )
    trail = verify(process, judge=judge, claims=claims)
    return process, replace(trail, dropped=(Dropped("answer#3", "So be it.", "unverifiable", "a conclusion"),))


def generated(chunks, claims):
    process, truth = make_process(2, chunks=chunks, claims=claims, facts=2, near_duplicates=0)
    judge = OracleJudge({claim.claim.id: claim.supporting for claim in truth.claims})
    return process, verify(process, judge=judge, claims=truth.texts)


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_the_data_say_what_was_found():
    process, trail = small()
    data = page_data(trail, SentenceIndex(process))
    names = [node[0] for node in data["nodes"]]
    assert [node[1] for node in data["nodes"]] == [1, 1, 2, 2, 3]
    assert data["nodes"][names.index("summary-a")][3] == "Summary of A"
    assert {(names[u], names[v]) for u, v in data["edges"]} == set(process.edges)
    true, invented, _ = data["claims"]
    assert [[names[node] for node in path] for path in true["paths"]] == [["report-a", "summary-a", "answer"]]
    assert [names[node] for node in invented["origin"]["nodes"]] == ["summary-a"]
    assert invented["origin"]["stages"] == [2]
    assert data["dropped"] == [["answer#3", "So be it.", "unverifiable", "a conclusion"]]
    first = true["steps"][0]
    read = [number for a, b in data["candidates"][first["read"]] for number in range(a, b + 1)]
    assert sorted(names[number] for number in read) == ["summary-a", "summary-b"]


def test_nodes_of_one_name_are_numbered():
    nodes = [Node("a", "x"), *(Node(f"run-{n}", "y", meta={"name": "model"}) for n in range(3))]
    process = Process(nodes, [("a", "run-0"), ("run-0", "run-1"), ("run-1", "run-2")])
    trail = verify(process, judge=OracleJudge({}), claims=["One thing happened."])
    labels = [node[3] for node in page_data(trail, SentenceIndex(process))["nodes"]]
    assert labels == ["", "model 1", "model 2", "model 3"]


def test_the_page_is_one_file_and_texts_cannot_leave_their_place():
    process, trail = small()
    html = page(trail, process, title=HOSTILE)
    assert outside_references(html) == []
    assert data_of(html) == json.loads(json.dumps(page_data(trail, SentenceIndex(process))))
    assert len(re.findall("<script", html)) == 2
    assert "<img" not in html


def test_a_page_of_another_process_is_refused():
    _, trail = small()
    other, _ = make_process(1)
    with pytest.raises(ValueError, match="the trail is that of another process"):
        page(trail, other)


def test_what_must_be_known_stands_on_top():
    process, trail = small()
    assert 'class="warning"' not in page(trail, process)
    unproven = page(replace(trail, check={"valid": False}), process)
    assert "The judge is not validated" in unproven
    empty = page(replace(trail, claims=()), process)
    assert "This does not mean that it is faithful" in empty
    area = {"value": 0.97, "low": 0.9, "high": 1.0}
    checked = page(replace(trail, check={"valid": True, "auroc": area}), process, cost=1.25)
    assert "AUROC 0.97 [0.90, 1.00]" in checked
    assert "1.25" in checked
    assert "3 of 4" in checked


def test_five_hundred_claims_over_thousands_of_texts_fit_in_five_megabytes():
    process, trail = generated(chunks=900, claims=500)
    assert len(process.nodes) > 2_000
    assert len(page(trail, process).encode()) < 5_000_000


def test_long_texts_are_cut_before_the_page_grows():
    texts = [Node(f"n{n}", f"A {'long ' * 80}sentence. " * 300) for n in range(30)]
    process = Process([*texts, Node("answer", "Yes, 1 thing happened.")], [(node.id, "answer") for node in texts])
    trail = verify(process, judge=OracleJudge({}), claims=["One thing happened."])
    html = page(trail, process)
    assert len(html.encode()) < 5_000_000
    assert sum(len(sentences) == 1 for sentences in data_of(html)["texts"]) > 10


# ---- in a browser


@pytest.fixture
def browse(chromium, tmp_path):
    """Opens the page of a trail; the page must not complain."""
    complaints, contexts = [], []

    def start(process, trail, width=1300, scheme="light"):
        write_page(trail, process, tmp_path / "trail.html", title=HOSTILE if scheme == "dark" else "")
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: complaints.append(request.url) if request.url[:4] == "http" else None)
        tab.goto((tmp_path / "trail.html").as_uri())
        tab.wait_for_selector("#claims li")
        return tab

    yield start
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.e2e
def test_a_click_shows_the_path_from_sentence_to_sentence(browse):
    tab = browse(*small())
    assert tab.locator("#claims button").count() == 3
    assert "not checked: unverifiable" in tab.locator("#claims .dropped").inner_text()
    tab.get_by_role("button", name="Marlowe closed its plant.").first.click()
    text = tab.locator("#claim").inner_text()
    assert "Supported, with a complete path" in text
    nodes = tab.locator("#claim ol.chain").first.locator(".node").all_inner_texts()
    assert nodes == ["report-b", "summary-b", "answer"]
    assert tab.locator("svg .box.evidence").count() == 2
    assert tab.locator("svg .edge.lit").count() == 2
    assert tab.url.endswith("#c2")


@pytest.mark.e2e
def test_an_invented_claim_is_marked_at_its_stage(browse):
    tab = browse(*small())
    assert tab.locator("svg .box.origin .mark-text").text_content() == "1"
    tab.locator("#claims button").nth(1).click()
    assert "Entered at stage 2, in Summary of A" in tab.locator("#claim .outcome").inner_text()
    assert "! entered here" in tab.locator("#graph").text_content()
    assert tab.locator("svg .box.origin").get_attribute("aria-label") == "Summary of A, stage 2, the claim enters here"
    assert tab.locator("svg .edge.spread").count() == 1
    tab.locator("#wave").fill("2")
    assert tab.locator("svg .box.read").count() == 1
    assert tab.locator("#wave-text").inner_text() == "2 of 2"


@pytest.mark.e2e
def test_the_keyboard_is_enough(browse):
    tab = browse(*small())
    tab.keyboard.press("j")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.innerText").startswith("It hired 400 people.")
    assert tab.locator("#claims [aria-current=true]").inner_text().startswith("It hired 400 people.")
    tab.locator("svg .box.origin").focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#node-title").inner_text() == "Summary of A"
    assert "It hired 400 people." in tab.locator("#node .hit").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator("#node").is_hidden()
    tab.keyboard.press("Escape")
    assert tab.locator("#claims [aria-current=true]").count() == 0
    tab.keyboard.press("/")
    tab.keyboard.type("marlowe")
    assert tab.locator("#claims li:not([hidden])").count() == 1


@pytest.mark.e2e
def test_filters_and_tally_choose_claims(browse):
    tab = browse(*small())
    tab.locator("#tally button", has_text="unsupported").click()
    assert tab.locator("#claims li:not([hidden])").all_inner_texts() == [
        "It hired 400 people.\n\u2717 unsupported\nentered at stage 2"
    ]
    tab.locator("#by-verdict").select_option("")
    tab.locator("#by-stop").select_option("roots")
    assert tab.locator("#claims li:not([hidden])").count() == 2
    assert tab.locator("#shown").inner_text().startswith("2 of 4 shown")


@pytest.mark.e2e
def test_hostile_texts_stay_texts(browse):
    process, trail = small()
    tab = browse(process, trail, scheme="dark")
    tab.get_by_role("button", name="Marlowe closed its plant.").first.click()
    tab.locator("#claim .node", has_text="report-b").first.click()
    assert HOSTILE.strip() in tab.locator("#node").text_content()
    assert tab.locator("img").count() == 0
    assert tab.title().startswith("</script>")


@pytest.mark.e2e
@pytest.mark.parametrize("width", [390, 1300])
def test_pages_of_two_thousand_texts_open_and_stay_within_the_window(browse, width):
    process, trail = generated(chunks=900, claims=40)
    tab = browse(process, trail, width)
    assert tab.locator("#map .cell").count() == len(process.nodes)
    unsupported = next(n for n, claim in enumerate(trail.claims) if claim.origin and claim.origin.stages != {4})
    tab.locator("#claims button").nth(unsupported).click()
    assert tab.locator("#map .cell.origin").count() == len(trail.claims[unsupported].origin.nodes)
    assert "read, no evidence" in tab.locator("#graph").text_content()
    assert 0 < tab.locator("#graph .box").count() <= 40
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.e2e
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_known_fault_of_accessibility(browse, scheme):
    from axe_playwright_python.sync_playwright import Axe

    tab = browse(*small(), scheme=scheme)
    tab.locator("#claims button").nth(1).click()
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.e2e
@pytest.mark.parametrize("width", [390, 1200])
def test_badges_and_a_long_header_stay_whole(browse, width):
    process, truth = make_process(2, chunks=8, claims=14, depth=5, fan=2, p_error=0.8, near_duplicates=0)
    judge = OracleJudge({claim.claim.id: claim.supporting for claim in truth.claims})
    trail = verify(process, judge=judge, claims=truth.texts)
    asked = Process(process.nodes.values(), process.edges, process.terminal, question="who_said_so_" * 100)
    long = replace(trail, process=asked.digest(), judge={"model": "a-model-of-a-long-name/" * 8})
    tab = browse(asked, long, width)
    picture, badges = tab.locator("#graph svg").bounding_box(), tab.locator("#graph .mark").all()
    assert "final" in tab.locator("#graph .box.final").text_content()
    assert tab.locator("#graph .box.final .mark").count() == 1
    for box in [badge.bounding_box() for badge in badges]:
        assert box["x"] >= picture["x"]
        assert box["x"] + box["width"] <= picture["x"] + picture["width"]
    notes = tab.locator("#graph .stage.entered").all()
    assert all(
        note.bounding_box()["x"] + note.bounding_box()["width"] <= picture["x"] + picture["width"] for note in notes
    )
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    over = (
        "[...document.querySelectorAll('header *')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    )
    assert tab.evaluate(f"{over}.map((e) => e.className || e.tagName)") == []
    assert tab.locator("h1").bounding_box()["height"] <= 125
