"""Influence of training examples, from one run, with its null.

Which training examples moved the model's behaviour on a query, by an amount that can be told from the noise of
training itself? Influence is the size μ of the Gaussian trade-off curve between a model trained with the examples and
one trained without: signed, with a unit, and with random groups of examples as its null.

>>> from gnomon.training.influence import FInfluence                                         # doctest: +SKIP
>>> recorder = FInfluence(model, losses, query=test, optimizer=optimizer, every=10)           # doctest: +SKIP
>>> if recorder.due(step): recorder.observe(batch, index)          # in your training loop    # doctest: +SKIP
>>> result = recorder.finalize()                                                             # doctest: +SKIP
>>> result.top(50), result.group(suspects)                                                   # doctest: +SKIP

Source: Panda, Tarsadiya, Sourav, Prathosh & Karimireddy (2025), "f-INE: A Hypothesis Testing Framework for Estimating
Influence under Training Randomness", arXiv 2510.10510. The estimator from a single run is our reconstruction.
"""

from gnomon.training.influence.calibration import calibrate, separation, separation_auc
from gnomon.training.influence.checkpoints import Checkpoint, observe_checkpoints, trainer_checkpoints
from gnomon.training.influence.losses import model_losses
from gnomon.training.influence.products import per_example_dots
from gnomon.training.influence.record import Record, Setting
from gnomon.training.influence.recorder import FInfluence
from gnomon.training.influence.result import GroupInfluence, InfluenceResult, Summary
from gnomon.training.influence.stability import stability
from gnomon.training.influence.tradeoff import (
    auc_from_mu,
    compose,
    gaussian_tradeoff,
    mu_from_auc,
    mu_from_errors,
    total_variation,
)
from gnomon.training.influence.trainer import FInfluenceCallback, WithIndex, attached

__all__ = [
    "Checkpoint",
    "FInfluence",
    "FInfluenceCallback",
    "GroupInfluence",
    "InfluenceResult",
    "Record",
    "Setting",
    "Summary",
    "WithIndex",
    "attached",
    "auc_from_mu",
    "calibrate",
    "compose",
    "gaussian_tradeoff",
    "model_losses",
    "mu_from_auc",
    "mu_from_errors",
    "observe_checkpoints",
    "per_example_dots",
    "separation",
    "separation_auc",
    "stability",
    "total_variation",
    "trainer_checkpoints",
]
