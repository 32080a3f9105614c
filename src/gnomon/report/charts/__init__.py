"""Chart kit: the pictures that instruments share, each with the control drawn beside the effect.

Every function takes a tidy table (its columns are in the docstring; arms are in column ``arm``, where ``"treatment"``
is the effect and every other value a control) and returns an Altair chart with a title, a caption for the page and a
description for screen readers. The arms' colours and shapes are the same everywhere (:mod:`gnomon.report.theme`).
A chart that no function here draws is plain Altair, finished with :func:`captioned`.
"""

from gnomon.report.charts.axes import captioned
from gnomon.report.charts.curves import dose_response, front, learning_curve
from gnomon.report.charts.diagnostics import reliability, roc
from gnomon.report.charts.effects import bars, forest, null_histogram
from gnomon.report.charts.maps import head_map, scatter_panels

__all__ = [
    "bars",
    "captioned",
    "dose_response",
    "forest",
    "front",
    "head_map",
    "learning_curve",
    "null_histogram",
    "reliability",
    "roc",
    "scatter_panels",
]
