"""Collecting a LangChain pipeline's runs while it works; needs ``langchain-core`` (the extra ``rag``).

.. code-block:: python

    runs = ProcessCallback()
    chain.invoke(question, config={"callbacks": [runs]})
    trail = verify(runs.process(question=question), judge=judge)
"""

from __future__ import annotations

from typing import Any

from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run

from gnomon.retrieval.veritrail.loaders.langchain_runs import read_langchain
from gnomon.retrieval.veritrail.process import Process

_FIELDS = ("id", "name", "run_type", "start_time", "inputs", "outputs")


class ProcessCallback(BaseTracer):
    """A callback that keeps every run of a pipeline."""

    def __init__(self) -> None:
        super().__init__(_schema_format="original+chat")
        self.runs: list[dict[str, Any]] = []
        """The runs so far, in the form that :func:`read_langchain` reads; they can be written as JSON."""

    def process(self, *, terminal: str | None = None, question: str = "") -> Process:
        """What was made from what.

        Args:
            terminal: Id of the run that wrote the final text; ``None``: the last run of a model.
            question: What the user had asked for.

        Raises:
            ValueError: If nothing has run.
            GraphError: If no run of a model has ended, or the graph is no process.
        """
        return read_langchain(self.runs, terminal=terminal, question=question)

    def _persist_run(self, run: Run) -> None:
        waiting = [run]
        while waiting:
            done = waiting.pop()
            waiting += done.child_runs
            self.runs.append(done.model_dump(mode="json", include=set(_FIELDS)))
