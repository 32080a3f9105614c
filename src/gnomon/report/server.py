"""``gnomon serve``: a local web app over the runs folder, on the templates of the report.

It listens on the loopback interface only and answers only to that name (a foreign page cannot reach it by rebinding
a domain). Reading needs nothing; starting, cancelling and resuming need the token that the server makes at its start,
which the address it prints turns into a cookie. Work is done by child processes (:mod:`gnomon.report.jobs`), never
here. Stored reports are served in a sandbox: whatever a run folder holds, it cannot act for the reader.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from gnomon.report.forms import changed, form_fields
from gnomon.report.html import environment, font_faces, template_text
from gnomon.report.jobs import Jobs, cancel
from gnomon.report.page import finding_rows
from gnomon.report.progress import progress_events, progress_of
from gnomon.studies import registry
from gnomon.studies.comparison import compare_runs
from gnomon.studies.settings import configure
from gnomon.studies.store import Run, find_runs

HOST = "127.0.0.1"
COOKIE = "gnomon-token"
MOST_FORM_BYTES = 64 * 1024

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "font-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_REPORT_POLICY = "sandbox allow-scripts allow-downloads allow-popups; frame-ancestors 'none'"
_SORTS: dict[str, Callable[[Run], Any]] = {
    "started": lambda run: run.record["started"],
    "study": lambda run: run.study,
    "status": lambda run: run.status,
}

Handler = Callable[[Request], Awaitable[Response]]


def serve(runs_dir: Path, *, port: int = 8765) -> None:
    """Serve the runs folder until interrupted; prints the address that lets its reader start work."""
    import uvicorn

    token = secrets.token_urlsafe(24)
    print(f"http://{HOST}:{port}/?token={token}", flush=True)
    # Readers that follow a run hold their connection; an ending server does not wait for them, they reconnect.
    uvicorn.run(create_app(runs_dir, token), host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=1)


def create_app(runs_dir: Path, token: str) -> Starlette:
    """The app over a runs folder; ``token`` is what actions need."""
    site = _Site(runs_dir, token)
    return Starlette(
        routes=[
            Route("/", site.home),
            Route("/instruments/{name}", site.instrument),
            Route("/instruments/{name}/start", site.start, methods=["POST"]),
            Route("/jobs/{job}", site.job),
            Route("/runs", site.runs),
            Route("/compare", site.compare),
            Route("/runs/{run}", site.run),
            Route("/runs/{run}/events", site.events),
            Route("/runs/{run}/cancel", site.cancel, methods=["POST"]),
            Route("/runs/{run}/resume", site.resume, methods=["POST"]),
            Route("/runs/{run}/files/{path:path}", site.file),
            Route("/static/{name}", _static),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
        exception_handlers={HTTPException: _problem},
    )


class _Site:
    def __init__(self, runs_dir: Path, token: str) -> None:
        self._runs_dir = runs_dir
        self._token = token
        self._jobs = Jobs(runs_dir)

    async def home(self, request: Request) -> Response:
        if given := request.query_params.get("token"):
            return self._admit(given)
        runs = await run_in_threadpool(find_runs, self._runs_dir)
        newest: dict[str, Run] = {}
        for run in runs:
            if run.has_findings:
                newest.setdefault(run.study, run)
        wings: dict[str, list[registry.Description]] = {}
        for description in registry.describe():
            wings.setdefault(description.wing, []).append(description)
        working = [run for run in runs if run.status == "running"]
        return self._page(request, "home.html", wings=wings, newest=newest, working=working)

    async def instrument(self, request: Request) -> Response:
        preset = request.query_params.get("preset", "quick")
        return await run_in_threadpool(self._instrument, request, preset, {}, "")

    async def start(self, request: Request) -> Response:
        entries = await self._form(request)
        name, preset = request.path_params["name"], entries.pop("preset", "quick")
        study = await run_in_threadpool(_study, name)
        try:
            assignments = changed(study, preset, entries)
            configure(study, preset, assignments)
        except (KeyError, ValueError) as error:
            problem = str(error.args[0])
            return await run_in_threadpool(self._instrument, request, preset, entries, problem)
        settings = [part for assignment in assignments for part in ("--set", assignment)]
        job = self._jobs.start(name, [name, "--preset", preset, *settings])
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def job(self, request: Request) -> Response:
        try:
            job = await run_in_threadpool(self._jobs.find, request.path_params["job"])
        except FileNotFoundError as error:
            raise HTTPException(404, str(error)) from None
        if run := await run_in_threadpool(self._jobs.run_of, job):
            return RedirectResponse(f"/runs/{quote(run.name)}", 303)
        alive = self._jobs.is_alive(job)
        return self._page(request, "job.html", job=job, alive=alive, log=self._jobs.log(job))

    async def runs(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip().lower()
        sort = request.query_params.get("sort", "started")
        if sort not in _SORTS:
            raise HTTPException(400, f"runs are sorted by {', '.join(_SORTS)}, not {sort!r}")
        found = await run_in_threadpool(find_runs, self._runs_dir)
        shown = [run for run in found if query in f"{run.name} {run.study} {run.preset} {run.status}".lower()]
        shown.sort(key=_SORTS[sort], reverse=sort == "started")
        return self._page(request, "runs.html", runs=shown, total=len(found), query=query, sort=sort)

    async def run(self, request: Request) -> Response:
        run = self._find_run(request.path_params["run"])
        return self._page(request, "run.html", run=run, progress=progress_of(run), rows=_rows(run), log=_log(run))

    async def compare(self, request: Request) -> Response:
        chosen = request.query_params.getlist("run")
        if len(chosen) != 2:
            raise HTTPException(400, f"choose two runs to compare, not {len(chosen)}")
        pair = [self._find_run(name) for name in chosen]
        compared = await run_in_threadpool(compare_runs, *pair)
        return self._page(request, "compare.html", compared=compared)

    async def events(self, request: Request) -> Response:
        run = self._find_run(request.path_params["run"])
        return StreamingResponse(
            progress_events(run.path), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def cancel(self, request: Request) -> Response:
        await self._form(request)
        run = self._find_run(request.path_params["run"])
        if not await run_in_threadpool(cancel, run):
            raise HTTPException(409, f"run {run.name} is not being worked on")
        return RedirectResponse(f"/runs/{quote(run.name)}", 303)

    async def resume(self, request: Request) -> Response:
        await self._form(request)
        run = self._find_run(request.path_params["run"])
        if run.status == "running":
            raise HTTPException(409, f"run {run.name} is being worked on")
        job = self._jobs.start(run.study, ["--resume", run.name])
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def file(self, request: Request) -> Response:
        run = self._find_run(request.path_params["run"])
        path = (run.path / request.path_params["path"]).resolve()
        if not path.is_relative_to(run.path.resolve()) or not path.is_file():
            raise HTTPException(404, "the run has no such file")
        page = path.suffix == ".html"
        headers = {"Content-Security-Policy": _REPORT_POLICY, "X-Content-Type-Options": "nosniff"}
        disposition = "inline" if page else "attachment"
        return FileResponse(path, filename=path.name, content_disposition_type=disposition, headers=headers)

    def _instrument(self, request: Request, preset: str, entries: dict[str, str], problem: str) -> Response:
        name = request.path_params["name"]
        study = _study(name)
        preset = preset if preset in study.Config.presets else "quick"
        return self._page(
            request,
            "instrument.html",
            status=422 if problem else 200,
            study=study,
            question=(study.__doc__ or "").strip().partition("\n")[0],
            preset=preset,
            fields=form_fields(study, preset),
            entries=entries,
            problem=problem,
            runs=find_runs(self._runs_dir, name)[:20],
        )

    def _find_run(self, name: str) -> Run:
        # A run is looked up among the folders there are: no name can lead outside.
        for path in self._runs_dir.iterdir() if self._runs_dir.is_dir() else ():
            if path.name == name and (path / "run.json").exists():
                try:
                    return Run(path)
                except ValueError as error:
                    raise HTTPException(404, str(error)) from None
        raise HTTPException(404, f"no run {name!r}")

    def _admit(self, given: str) -> Response:
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            raise HTTPException(403, "this token is of an earlier start: open the address that gnomon serve printed")
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, given, httponly=True, samesite="strict")
        return response

    def _may_act(self, request: Request) -> bool:
        return secrets.compare_digest(request.cookies.get(COOKIE, "").encode(), self._token.encode())

    async def _form(self, request: Request) -> dict[str, str]:
        """Entries of a form, from a reader who may act, sent by a page of ours."""
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.headers['host']}":
            raise HTTPException(403, "this form was sent by another site")
        if not self._may_act(request):
            raise HTTPException(403, "reading only: open the address that gnomon serve printed to start work")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM_BYTES:
                raise HTTPException(413, "the form is too large")
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    def _page(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        return _html(template, status, may_act=self._may_act(request), path=request.url.path, **context)


def _html(template: str, status: int, **context: Any) -> HTMLResponse:
    text = environment().get_template(template).render(**context)
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _html("problem.html", error.status_code, may_act=False, path=request.url.path, problem=error.detail)


async def _static(request: Request) -> Response:
    types = {"page.css": "text/css", "fonts.css": "text/css", "serve.js": "text/javascript"}
    name = request.path_params["name"]
    if name not in types:
        raise HTTPException(404, f"no file {name!r}")
    text = str(font_faces()) if name == "fonts.css" else template_text(name)
    return Response(text, media_type=types[name], headers={"X-Content-Type-Options": "nosniff"})


@cache
def _study(name: str) -> Any:
    try:
        return registry.load_study(name)
    except KeyError as error:
        raise HTTPException(404, error.args[0]) from None


def _rows(run: Run) -> list[Any]:
    return [finding_rows(finding) for finding in run.findings_so_far]


def _log(run: Run) -> str:
    """Tracebacks of the units that failed, the first few."""
    found = sorted((run.path / "tracebacks").glob("*.txt"))[:3]
    return "\n\n".join(path.read_text(encoding="utf-8", errors="replace")[-4000:] for path in found)
