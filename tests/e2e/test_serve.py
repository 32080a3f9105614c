"""The web app as a user has it: a real server, a real Chromium, real child processes."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from axe_playwright_python.sync_playwright import Axe

from gnomon.studies.store import Run, find_runs

pytestmark = pytest.mark.e2e

SIZES = [(360, "light"), (1600, "dark")]
HOSTILE = "<script>document.title='hacked'</script>"


class Server:
    """``gnomon serve`` as a process, with the tiny study installed."""

    def __init__(self, gnomon):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.gnomon = gnomon
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gnomon", "serve", "--port", str(self.port)],
            cwd=self.gnomon.folder,
            env=self.gnomon.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("the server does not listen")

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=30)

    def ask(self, method, path, body=None, **headers):
        """A raw request: status, headers, text. The path goes out as it is written here."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, dict(response.getheaders()), text

    @property
    def cookie(self):
        _, headers, _ = self.ask("GET", "/" + self.address.rpartition("/")[2])
        return headers["set-cookie"].partition(";")[0]


@pytest.fixture
def server(gnomon):
    served = Server(gnomon)
    yield served
    served.stop()
    for run in find_runs(gnomon.runs_dir):
        if run.status == "running":
            os.kill(run.record["pid"], signal.SIGKILL)


@pytest.fixture
def tab(chromium, server):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: page.problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: page.problems.append(f"error: {error}"))
    yield page
    context.close()


def start_run(tab, server, preset="quick", **fields):
    tab.goto(server.address)
    tab.get_by_role("link", name="Drift in random walks").click()
    if preset != "quick":
        tab.get_by_role("link", name=preset, exact=True).click()
    for label, value in fields.items():
        tab.get_by_label(label, exact=True).fill(str(value))
    tab.get_by_role("button", name=f"Run {preset}").click()


def test_from_an_empty_state_to_a_finished_run_and_its_report(tab, server):
    tab.goto(server.address)
    assert "Not run here yet." in tab.inner_text("main")
    start_run(tab, server, steps=60, pause=0.05)
    tab.wait_for_url("**/runs/*", timeout=60_000)
    tab.get_by_role("link", name="Open the report").wait_for(timeout=120_000)
    assert "15 of 15 units" in tab.inner_text("main") or "done" in tab.locator("[data-status]").inner_text()
    [run] = find_runs(server.gnomon.runs_dir)
    assert run.status == "done"
    assert run.config["steps"] == 60
    tab.get_by_role("link", name="Open the report").click()
    tab.wait_for_selector("html[data-charts=drawn]", state="attached")
    assert tab.get_by_role("heading", level=1).inner_text() == "Does a drifting walk get further than a driftless one?"
    tab.goto(f"http://127.0.0.1:{server.port}/")
    assert tab.locator(".instruments .chip").count() == len(run.findings)
    assert tab.problems == []


def test_a_wrong_value_is_named_above_the_form_and_nothing_starts(server):
    status, _, text = server.ask(
        "POST", "/instruments/tiny-walks/start", "preset=quick&seed=-1&steps=77", Cookie=server.cookie
    )
    assert status == 422
    assert "--set seed: Input should be greater than or equal to 0" in text
    assert 'value="77"' in text
    assert not list(server.gnomon.runs_dir.glob("*"))


def test_a_job_that_ends_before_its_run_begins_shows_what_it_printed(tab, server):
    start_run(tab, server, claims='["nonsense"]')
    tab.get_by_role("heading", name="It ended before it had a run folder").wait_for(timeout=60_000)
    assert "nonsense" in tab.inner_text("pre")


def test_a_run_can_be_cancelled_and_resumed(tab, server):
    start_run(tab, server, pause=1.5)
    tab.get_by_role("button", name="Cancel").click(timeout=60_000)
    tab.get_by_role("button", name="Resume").wait_for(timeout=60_000)
    [run] = find_runs(server.gnomon.runs_dir)
    assert run.status == "interrupted"
    tab.get_by_role("button", name="Resume").click()
    tab.get_by_role("link", name="Open the report").wait_for(timeout=120_000)
    assert Run(run.path).status == "done"


def test_a_failed_unit_shows_its_error_and_the_server_stays_up(tab, server):
    start_run(tab, server, fault="raise")
    tab.get_by_text("Tracebacks").click(timeout=120_000)
    assert "broken on purpose in walk" in tab.inner_text("pre")
    assert server.ask("GET", "/")[0] == 200


def test_a_restarted_server_finds_a_run_that_went_on_without_it(tab, server):
    start_run(tab, server, pause=4.0)
    tab.wait_for_url("**/runs/*", timeout=60_000)
    url = tab.url
    server.stop()
    server.start()
    assert "quick) is running" in server.ask("GET", "/")[2]
    tab.goto(url)
    tab.get_by_role("link", name="Open the report").wait_for(timeout=120_000)
    assert find_runs(server.gnomon.runs_dir)[0].status == "done"


@pytest.fixture
def two_runs(tiny_run, server):
    """Two finished runs, one with a hostile name, setting and error."""
    first = shutil.copytree(tiny_run, server.gnomon.runs_dir / tiny_run.name)
    hostile = shutil.copytree(
        tiny_run, server.gnomon.runs_dir / "<img src=x onerror=document.title='hacked'> & \"quoted\""
    )
    record = json.loads((hostile / "run.json").read_text())
    record["errors"] = [HOSTILE]
    record["config"] |= {"steps": 40, "fault": HOSTILE}
    (hostile / "run.json").write_text(json.dumps(record))
    return first, hostile


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_page_fits_and_axe_finds_nothing(chromium, server, two_runs, width, scheme):
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(server.address)
    page.goto(f"http://127.0.0.1:{server.port}/runs")
    pages = ["/", "/instruments/tiny-walks", "/runs", "/runs?q=nothing"]
    pages += page.eval_on_selector_all("th a", "links => links.map(link => link.getAttribute('href'))")
    boxes = page.eval_on_selector_all("[name=run]", "boxes => boxes.map(box => encodeURIComponent(box.value))")
    pages.append(f"/compare?run={boxes[0]}&run={boxes[1]}")
    for path in pages:
        page.goto(f"http://127.0.0.1:{server.port}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert [violation["id"] for violation in Axe().run(page).response["violations"]] == [], path
        assert page.title() != "hacked"
    assert problems == []
    context.close()


def test_runs_are_searched_sorted_and_compared(tab, server, two_runs):
    tab.goto(f"http://127.0.0.1:{server.port}/runs?sort=study")
    assert tab.locator("tbody tr").count() == 2
    tab.get_by_label("Search").fill("onerror")
    tab.get_by_role("button", name="Show").click()
    assert tab.locator("tbody tr").count() == 1
    tab.goto(f"http://127.0.0.1:{server.port}/runs")
    for box in tab.get_by_role("checkbox").all():
        box.check()
    tab.get_by_role("button", name="Compare the two chosen").click()
    assert re.search(r"steps\s+(40\s+50|50\s+40)", tab.inner_text("#differences-heading + .scroll"))


def test_only_its_own_name_on_the_loopback_interface_is_answered(server):
    assert server.ask("GET", "/", Host="evil.example")[0] == 400
    assert server.ask("GET", "/", Host=f"localhost:{server.port}")[0] == 200


def test_actions_need_the_token_of_this_start_and_a_form_of_this_site(server, two_runs):
    run, _ = two_runs
    path = f"/runs/{run.name}/resume"
    own = f"http://127.0.0.1:{server.port}"
    cookie = server.cookie
    assert server.ask("POST", path)[0] == 403
    assert server.ask("POST", path, Cookie="gnomon-token=wrong")[0] == 403
    assert server.ask("POST", path, Cookie=cookie, Origin="http://evil.example")[0] == 403
    assert server.ask("POST", path, Cookie=cookie, Origin="null")[0] == 403
    assert server.ask("POST", path, body=b"x" * 100_000, Cookie=cookie, Origin=own)[0] == 413
    assert server.ask("GET", "/?token=wrong")[0] == 403
    assert server.ask("POST", f"/runs/{run.name}/cancel", Cookie=cookie, Origin=own)[0] == 409
    assert len(find_runs(server.gnomon.runs_dir)) == 2


def test_no_file_outside_the_run_can_be_read(server, two_runs):
    run, _ = two_runs
    secret = server.gnomon.folder / "secret"
    secret.write_text("secret")
    (run / "link").symlink_to(secret)
    outside = [
        "../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "units/../../../secret",
        "/etc/passwd",
        "%2e%2e/%2e%2e/secret",
        "link",
    ]
    for path in [*outside, "", "units", "missing.txt"]:
        status, _, text = server.ask("GET", f"/runs/{run.name}/files/{path}")
        assert (status, text != "secret") == (404, True), path
    for name in ["..", "%2e%2e", ".jobs", "nothing", "..%2fsite"]:
        assert server.ask("GET", f"/runs/{name}")[0] == 404, name


def test_a_stored_report_is_served_where_it_cannot_act(server, two_runs):
    run, _ = two_runs
    status, headers, _ = server.ask("GET", f"/runs/{run.name}/files/report.html")
    assert status == 200
    assert headers["content-security-policy"].startswith("sandbox allow-scripts")
    status, headers, _ = server.ask("GET", f"/runs/{run.name}/files/run.json")
    assert headers["content-disposition"].startswith("attachment")
    assert "script-src 'self'" in server.ask("GET", "/")[1]["content-security-policy"]
