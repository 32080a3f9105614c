"""A study whose units look at the process that measures them."""

import os

import pandas as pd

from gnomon.studies.study import Paper, Study, StudyConfig


class WorkerStudy(Study):
    """Who measures this?"""

    name = "worker"
    title = "Workers"
    wing = "tests"
    paper = Paper("On work", "Nobody")
    claims = ()
    Config = StudyConfig

    def measure_look(self, unit, run):
        """Process and its threads."""
        return pd.DataFrame({"pid": [os.getpid()], "threads": [os.environ["OMP_NUM_THREADS"]]})
