"""Pages: the report of a run as one HTML file that needs no network, and what other pages share with it.

The file carries its fonts, styles, scripts, charts and small tables. Its content security policy forbids every request
and every script but those that are written into it by hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gnomon.evidence import Claim
from gnomon.evidence.intervals import Estimate
from gnomon.report.document import inline_scripts
from gnomon.report.elements import Element, written
from gnomon.report.figures import Figure, figure, vega_bundle
from gnomon.report.page import Page, count_verdicts, page_of_run
from gnomon.report.theme import FONT_FOLDER
from gnomon.studies.files import write_text
from gnomon.studies.unit import MissingTable

if TYPE_CHECKING:
    from gnomon.studies.store import Run
    from gnomon.studies.study import Study


def write_report(run: Run, study: Study) -> list[Figure]:
    """Write ``report.html`` and, for every figure, its files under ``charts/``, into the run folder.

    Returns the figures.

    A study without the tables for its charts still gets its page; it says which table is missing. If the charts
    cannot be drawn, the page is written without them before the error is raised.
    """
    figures: list[Figure] = []
    notices: list[str] = []
    try:
        charts = study.charts(run.tables, run.findings_so_far)
        figures = [figure(name, drawn) for name, drawn in charts.items()]
        save_figures(figures, run)
    except MissingTable as missing:
        notices.append(f"No charts: {missing}.")
    except Exception as error:
        notices.append(f"The charts could not be drawn: {type(error).__name__}: {error}")
        raise
    finally:
        write_text(run.path / "report.html", render(page_of_run(run, study, figures, notices)))
    return figures


def save_figures(figures: Iterable[Figure], run: Run) -> None:
    """Write every chart as Vega-Lite, PNG and SVG, and every element as a page of its own, under ``charts/``."""
    folder = run.path / "charts"
    folder.mkdir(exist_ok=True)
    for drawn in figures:
        if drawn.element is None:
            drawn.save(folder)
        else:
            write_text(folder / f"{drawn.name}.html", render_element(drawn.element))


def render(page: Page) -> str:
    """The report as one HTML document."""
    charts = any(drawn.specification is not None for drawn in page.figures)
    scripts = [vega_bundle(), template_text("page.js")] if charts else []
    documents = [drawn.element.html for drawn in page.figures if drawn.element and drawn.element.sandboxed]
    return _rendered("report.html", page=page, **_frame(scripts, documents))


def render_element(element: Element) -> str:
    """An element as a page of its own; an explorable document is one already."""
    if element.sandboxed:
        return str(element.html)
    return _rendered("element.html", element=element, **_frame([], []))


def render_page(template: str, **context: Any) -> str:
    """A page of its own from a template, without scripts."""
    return _rendered(template, **context, **_frame([], []))


def _rendered(template: str, **context: Any) -> str:
    text = environment().get_template(template).render(context)
    # A lone surrogate, half of a character that a model broke off, cannot be written as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _frame(scripts: list[str], documents: Iterable[str]) -> dict[str, Any]:
    # A sandboxed document inherits the page's policy, so the hashes of its scripts belong to that policy too.
    allowed = [*scripts, *(script for document in documents for script in inline_scripts(document))]
    return {
        "policy": content_policy(allowed),
        "scripts": [Markup(script) for script in scripts],
        "style": Markup(template_text("page.css")),
        "fonts": font_faces(),
    }


def content_policy(scripts: Iterable[str]) -> str:
    """Content security policy of a page that loads nothing and runs exactly these inline scripts.

    Styles may be inline: drawings and explorable documents carry their own, and a style cannot send anything out
    when no request is allowed.
    """
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in dict.fromkeys(scripts)) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def font_faces() -> Markup:
    """``@font-face`` rules that carry the font."""
    faces = [("Regular", 400), ("SemiBold", 600)]
    return Markup("\n").join(
        Markup(
            "@font-face{{font-family:Inter;font-weight:{};font-display:swap;"
            'src:url("data:font/woff2;base64,{}") format("woff2")}}'
        ).format(weight, base64.b64encode((FONT_FOLDER / f"Inter-{name}.woff2").read_bytes()).decode())
        for name, weight in faces
    )


def template_text(name: str) -> str:
    """A style or script of the templates' folder."""
    return (files("gnomon.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates with the filters they use; every text is escaped."""
    environment = Environment(
        loader=PackageLoader("gnomon.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "written": written,
        "interval": interval,
        "p_value": p_value,
        "duration": duration,
        "date": date,
        "decision_rule": decision_rule,
        "csv_url": csv_url,
        "json_block": json_block,
        "verdicts": verdicts,
    }
    return environment


def interval(estimate: Estimate) -> str:
    """The interval of an estimate.

    >>> interval(Estimate(0.4, -0.1, 0.9))
    '[−0.1, 0.9]'
    """
    return f"[{written(estimate.low)}, {written(estimate.high)}]"


def p_value(p: float | None) -> str:
    """A p-value to two digits, never a rounded zero.

    >>> p_value(0.0312), p_value(2e-9), p_value(None)
    ('0.031', '< 0.0001', '–')
    """
    if p is None or p != p:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def duration(seconds: float) -> str:
    """Seconds as a reader says them.

    >>> duration(0.25), duration(59), duration(3725)
    ('0.2 s', '59 s', '1 h 2 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def date(iso: str) -> str:
    """Day and minute of an ISO time.

    >>> date("2026-12-02T10:14:09+00:00"), date("soon")
    ('2 Dec 2026, 10:14', 'soon')
    """
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{moment.day} {moment:%b %Y, %H:%M}"


def decision_rule(claim: Claim) -> str:
    """When a claim counts as supported, in words."""
    if claim.kind == "exact":
        return "No instance violates it, and the broken variant is caught."
    if claim.kind == "equivalence":
        return f"The difference lies within ±{written(claim.margin)} (two one-sided tests)."
    side = "above" if claim.sign > 0 else "below"
    rule = f"The interval of the difference lies {side} {written(claim.sign * claim.margin)}."
    if claim.smallest is None or claim.smallest == claim.margin:
        return rule
    return f"{rule} The smallest that matters is {written(claim.sign * claim.smallest)}."


def verdicts(run: Run) -> list[tuple[str, int]]:
    """How many of a run's findings have each verdict."""
    return [(str(verdict), count) for verdict, count in count_verdicts(run.findings_so_far).items()]


def csv_url(text: str) -> str:
    """CSV as a data URL."""
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def json_block(value: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: no character of it can end one."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
