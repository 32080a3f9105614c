"""Where and how does a fixed model fail, by the smallest change to its inputs that would make it right?

A tutor, a small net, sees a row and proposes a correction of the pupil's input; the pupil answers as it always did.
Where corrections are large the pupil fails; along which features, and how far in their own units, says how. Whether
that is a finding or flexibility is decided by refits under nulls: the pupil's own answers as targets, as many errors
scattered at random, and a tutor that sees another row.

Paper: "The Tutor-Pupil Augmentation: Enhancing Learning and Interpretability via Input Corrections", ICLR 2026.

>>> from sklearn.datasets import make_moons
>>> from sklearn.tree import DecisionTreeClassifier
>>> X, y = make_moons(600, noise=0.15, random_state=0)
>>> tree = DecisionTreeClassifier(max_depth=2).fit(X[:300], y[:300])
>>> tutor = TutorPupilClassifier(tree, lam=0.3, max_steps=200, learning_rate=0.03, random_state=0)
>>> tutor = tutor.fit(X[:300], y[:300])
>>> report = diagnose(tutor, X[300:], y[300:], n_null=20)
>>> report.reading
'structured'
"""

from gnomon.learners.tutor_pupil.baselines import (
    BlackBoxClassifier,
    BlackBoxRegressor,
    ResidualClassifier,
    ResidualRegressor,
    StackClassifier,
    StackRegressor,
)
from gnomon.learners.tutor_pupil.classifier import TutorPupilClassifier
from gnomon.learners.tutor_pupil.diagnose import diagnose
from gnomon.learners.tutor_pupil.domain import Domain
from gnomon.learners.tutor_pupil.dynamics import TutoredODE
from gnomon.learners.tutor_pupil.latent import LatentTutor, PrincipalCoder, VariationalAutoencoder
from gnomon.learners.tutor_pupil.networks import NotDifferentiable
from gnomon.learners.tutor_pupil.persistence import load, save
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil, as_differentiable
from gnomon.learners.tutor_pupil.regressor import TutorPupilRegressor
from gnomon.learners.tutor_pupil.report import TutorReport

__all__ = [
    "BlackBoxClassifier",
    "BlackBoxRegressor",
    "DifferentiablePupil",
    "Domain",
    "LatentTutor",
    "NotDifferentiable",
    "PrincipalCoder",
    "ResidualClassifier",
    "ResidualRegressor",
    "StackClassifier",
    "StackRegressor",
    "TutorPupilClassifier",
    "TutorPupilRegressor",
    "TutorReport",
    "TutoredODE",
    "VariationalAutoencoder",
    "as_differentiable",
    "diagnose",
    "load",
    "save",
]
