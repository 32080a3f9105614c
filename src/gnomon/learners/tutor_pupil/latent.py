"""Tutors that correct an image in the latent space of an autoencoder instead of pixel by pixel."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from gnomon.learners.tutor_pupil.losses import TaskLoss, top_two_gap
from gnomon.learners.tutor_pupil.networks import Affine
from gnomon.learners.tutor_pupil.pupils import DifferentiablePupil, as_differentiable
from gnomon.learners.tutor_pupil.tutor import build_tutor
from gnomon.models.ensemble import StackedNets, train_stacked


class Coder(Protocol):
    """An autoencoder with a Gaussian posterior, frozen while a tutor trains."""

    def posterior(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Mean and standard deviation of the latent given an input."""
        ...

    def decode(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Input of a latent."""
        ...


class VariationalAutoencoder(nn.Module):
    r"""A small variational autoencoder of vectors with Gaussian noise.

    .. math:: \min \; \mathbb E \lVert x - D(z) \rVert^2 / (2 s^2) + \mathrm{KL}(N(\mu, \sigma^2) \,\|\, N(0, I))

    Args:
        n_features: Length of an input.
        latent: Length of a code.
        hidden: Width of encoder and decoder.
        noise: s, the standard deviation at which reconstruction and prior are weighed.
        seed: Of weights and training noise.
    """

    def __init__(
        self, n_features: int, *, latent: int = 12, hidden: int = 128, noise: float = 0.1, seed: int = 0
    ) -> None:
        super().__init__()
        self.noise = noise
        self.seed = seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = nn.Sequential(nn.Linear(n_features, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent))
            self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, n_features))

    def posterior(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Mean and standard deviation of the latent given an input."""
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, (0.5 * log_variance).exp()

    def decode(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Input of a latent."""
        return self.decoder(z)

    def fit(
        self, x: Float[np.ndarray, "n d"], *, steps: int = 2000, batch_size: int = 128, learning_rate: float = 2e-3
    ) -> VariationalAutoencoder:
        """Train on rows with AdamW and a cosine schedule, then freeze."""
        rows = torch.from_numpy(np.asarray(x)).float()
        generator = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.AdamW(self.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        for _ in range(steps):
            batch = rows[torch.randint(len(rows), (batch_size,), generator=generator)]
            mean, spread = self.posterior(batch)
            z = mean + spread * torch.randn(mean.shape, generator=generator)
            misfit = (batch - self.decode(z)).square().sum(1) / (2 * self.noise**2)
            loss = (misfit + gaussian_kl(mean, spread, torch.zeros_like(mean), torch.ones_like(spread))).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        self.eval().requires_grad_(False)
        return self


class PrincipalCoder(nn.Module):
    """Principal component scores as a code, with the residual noise of probabilistic PCA as posterior spread."""

    def __init__(self, fitted: PCA) -> None:
        super().__init__()
        components: np.ndarray = np.asarray(fitted.components_)
        mean = np.asarray(fitted.mean_)
        self.encoder = Affine(components, -components @ mean).float()
        self.decoder = Affine(components.T, mean).float()
        self.spread = float(max(fitted.noise_variance_, 1e-12) ** 0.5)

    def posterior(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Scores and their spread."""
        mean = self.encoder(x)
        return mean, torch.full_like(mean, self.spread)

    def decode(self, z: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """Input of some scores."""
        return self.decoder(z)


def gaussian_kl(
    mean: Float[Tensor, "*rows k"],
    spread: Float[Tensor, "*rows k"],
    other_mean: Float[Tensor, "*rows k"],
    other_spread: Float[Tensor, "*rows k"],
) -> Float[Tensor, "*rows"]:
    r"""Kullback-Leibler divergence of diagonal normals.

    .. math:: \sum_j \log\frac{\tau_j}{\sigma_j} + \frac{\sigma_j^2 + (\mu_j - \nu_j)^2}{2 \tau_j^2} - \frac12
    """
    ratio = spread / other_spread
    return 0.5 * (ratio.square() + ((mean - other_mean) / other_spread).square() - 1 - 2 * ratio.log()).sum(-1)


class LatentTutor(ClassifierMixin, BaseEstimator):
    r"""A fixed image classifier made right by moving the code of its input.

    .. math:: q(z' | z) = N(z + \delta(z), \mathrm{diag}\, \sigma^2(z)), \quad x' = D(z') \;[+\; x - D(z)], \quad
              \min \; \ell(y, f(x')) + \lambda_1 \mathrm{KL}(q \,\|\, g(z|x)) + \lambda_2 \lVert x' - x \rVert^2

    with z the posterior mean of x under the frozen autoencoder and g its posterior. Predictions use the mean of q.

    Args:
        pupil: Fitted classifier, as for ``TutorPupilClassifier``.
        coder: Frozen autoencoder (:class:`VariationalAutoencoder`, :class:`PrincipalCoder` or your own).
        lam_kl: Weight of the divergence from the posterior.
        lam_x: Weight of the squared change of the image.
        keep_residual: Add the reconstruction residual back, so that a row the tutor leaves alone reaches the pupil
            exactly as it was.
        loss: ``"satisficing"`` or ``"log_loss"``.
        margin: As for ``TutorPupilClassifier``.
        pupil_kind, tau, hidden, max_steps, batch_size, learning_rate, random_state: As for ``TutorPupilClassifier``.
    """

    def __init__(
        self,
        pupil: Any,
        coder: Coder,
        *,
        lam_kl: float = 0.01,
        lam_x: float = 0.01,
        keep_residual: bool = True,
        loss: str = "satisficing",
        margin: float = 0.25,
        pupil_kind: Any = "auto",
        tau: Any = 0.1,
        hidden: tuple[int, ...] = (64, 64),
        max_steps: int = 1000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        random_state: Any = None,
    ) -> None:
        self.pupil = pupil
        self.coder = coder
        self.lam_kl = lam_kl
        self.lam_x = lam_x
        self.keep_residual = keep_residual
        self.loss = loss
        self.margin = margin
        self.pupil_kind = pupil_kind
        self.tau = tau
        self.hidden = hidden
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LatentTutor:
        """Fit the tutor; pupil and autoencoder stay as they are."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.network_ = as_differentiable(self.pupil, kind=self.pupil_kind, tau=self.tau, check_on=X)
        assert self.network_.classes is not None
        self.classes_ = self.network_.classes
        targets = torch.from_numpy(np.searchsorted(self.classes_, y))
        gap = float(np.median(top_two_gap(self.network_.soft_outputs(X))))
        loss = TaskLoss(self.loss, unit=gap if self.loss == "satisficing" and gap > 0 else 1.0, margin=self.margin)
        pupil = self.network_.in_dtype(torch.float32)
        x = torch.from_numpy(X).float()
        with torch.no_grad():
            mean, spread = self.coder.posterior(x)
            residual = x - self.coder.decode(mean)
        self.unit_ = mean.std(0).clamp_min(1e-6)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        width = mean.shape[1]
        nets = StackedNets(lambda: build_tutor(width, 2 * width, tuple(self.hidden)), [seed])
        generator = torch.Generator().manual_seed(seed)

        def objective(batch: Tensor) -> Tensor:
            shift, log_ratio = nets.shared(mean[batch] / self.unit_)[0].chunk(2, dim=-1)
            centre, width_ = mean[batch] + self.unit_ * shift, spread[batch] * log_ratio.exp()
            z = centre + width_ * torch.randn(centre.shape, generator=generator)
            moved = self.coder.decode(z) + (residual[batch] if self.keep_residual else 0.0)
            task = loss(pupil(moved), targets[batch])
            divergence = gaussian_kl(centre, width_, mean[batch], spread[batch])
            change = (moved - x[batch]).square().sum(-1)
            return (task + self.lam_kl * divergence + self.lam_x * change).mean().unsqueeze(0)

        train_stacked(
            nets,
            objective,
            len(x),
            steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        self.tutor_ = nets.net(0)
        return self

    def correct(self, X: Any) -> Float[np.ndarray, "n d"]:
        """Corrected inputs."""
        X = self._checked(X)
        x = torch.from_numpy(X).float()
        with torch.no_grad():
            mean, _ = self.coder.posterior(x)
            before = self.coder.decode(mean)
            after = self.coder.decode(mean + self._shift(mean))
        moved = (after - before).double().numpy()
        return X + moved if self.keep_residual else after.double().numpy()

    def latent_corrections(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Shift of each code, in standard deviations of the codes."""
        x = torch.from_numpy(self._checked(X)).float()
        with torch.no_grad():
            return (self._shift(self.coder.posterior(x)[0]) / self.unit_).double().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The pupil's label on corrected inputs."""
        return self._network().predict(self.correct(X))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """The pupil's class probabilities on corrected inputs."""
        return self._network().predict_proba(self.correct(X))

    def _network(self) -> DifferentiablePupil:
        check_is_fitted(self, "network_")
        return self.network_

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "tutor_")
        return validate_data(self, X, reset=False, dtype=np.float64)

    def _shift(self, mean: Tensor) -> Tensor:
        return self.unit_ * self.tutor_(mean / self.unit_).chunk(2, dim=-1)[0]
