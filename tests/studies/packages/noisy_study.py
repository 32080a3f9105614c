"""A study whose one unit prints."""

import pandas as pd

from gnomon.evidence import Claim, Finding
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Unit


class NoisyStudy(Study):
    """Is what workers print kept?"""

    name = "noisy"
    title = "What workers print"
    wing = "tests"
    paper = Paper("On noise", "Nobody")
    claims = (Claim("heard", "It is heard", "exact", "sound"),)

    Config = StudyConfig

    def units(self, config):
        return [Unit("word", {})]

    def measure_word(self, unit, run):
        print("heard in the log")
        return pd.DataFrame({"word": ["heard"]})

    def judge(self, tables, config):
        return [Finding(self.claim("heard"), withheld="nothing to count")]

    def charts(self, tables, findings):
        return {}
