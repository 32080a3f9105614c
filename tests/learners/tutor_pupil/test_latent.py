"""Latent tutors: closed forms, the frozen pupil, and what keeping the residual means."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from torch.distributions import Normal, kl_divergence

from gnomon.data.digits import digits
from gnomon.learners.tutor_pupil import LatentTutor, PrincipalCoder, VariationalAutoencoder
from gnomon.learners.tutor_pupil.latent import gaussian_kl


@pytest.fixture(scope="module")
def parts():
    train, test = digits().split((500, 300), np.random.default_rng(0))
    pupil = LogisticRegression(C=0.01, max_iter=1000).fit(train.flat, train.labels)
    return train, test, pupil, PrincipalCoder(PCA(12, random_state=0).fit(train.flat))


def test_divergence_of_normals():
    generator = torch.Generator().manual_seed(0)
    mean, other = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    spread, wide = torch.rand(2, 7, 3, generator=generator, dtype=torch.float64) + 0.1
    expected = kl_divergence(Normal(mean, spread), Normal(other, wide)).sum(-1)
    torch.testing.assert_close(gaussian_kl(mean, spread, other, wide), expected)


def test_principal_code_is_sklearns(parts):
    train, _, _, coder = parts
    fitted = PCA(12, random_state=0).fit(train.flat)
    x = torch.from_numpy(train.flat).float()
    mean, spread = coder.posterior(x)
    np.testing.assert_allclose(mean, fitted.transform(train.flat), atol=1e-5)
    np.testing.assert_allclose(coder.decode(mean), fitted.inverse_transform(mean), atol=1e-5)
    assert (spread == spread[0, 0]).all()


def test_an_untrained_tutor_keeps_the_image_only_with_its_residual(parts):
    train, test, pupil, coder = parts
    kept = LatentTutor(pupil, coder, max_steps=0, random_state=0).fit(train.flat, train.labels)
    np.testing.assert_allclose(kept.correct(test.flat), test.flat, atol=1e-6)
    assert (kept.predict(test.flat) == pupil.predict(test.flat)).all()
    dropped = LatentTutor(pupil, coder, max_steps=0, keep_residual=False, random_state=0).fit(train.flat, train.labels)
    reconstructed = coder.decode(coder.posterior(torch.from_numpy(test.flat).float())[0])
    np.testing.assert_allclose(dropped.correct(test.flat), reconstructed, atol=1e-5)


def test_a_latent_tutor_lifts_its_pupil(parts):
    train, test, pupil, coder = parts
    tutor = LatentTutor(pupil, coder, max_steps=150, random_state=0).fit(train.flat, train.labels)
    assert tutor.score(test.flat, test.labels) > pupil.score(test.flat, test.labels) + 0.02
    assert tutor.latent_corrections(test.flat).shape == (300, 12)
    np.testing.assert_allclose(tutor.predict_proba(test.flat).sum(1), 1)


def test_autoencoder_learns_to_reconstruct(parts):
    train, test, _, _ = parts
    x = torch.from_numpy(test.flat).float()
    coder = VariationalAutoencoder(64, latent=8, hidden=32)

    def misfit():
        with torch.no_grad():
            return float((coder.decode(coder.posterior(x)[0]) - x).square().mean().sqrt())

    before = misfit()
    coder.fit(train.flat, steps=200)
    assert misfit() < 0.6 * before
    assert all(not parameter.requires_grad for parameter in coder.parameters())
