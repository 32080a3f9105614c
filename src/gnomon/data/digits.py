"""Handwritten digits, 8 x 8, from scikit-learn: images, point sets, splits, wrong labels and user groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

CLASSES = 10
SIDE = 8


@dataclass(frozen=True)
class Digits:
    """Some of the 1,797 digits.

    Args:
        images: Intensities in [0, 1].
        labels: 0 to 9.
        rows: Where each stands in scikit-learn's order.
    """

    images: Float[np.ndarray, "n 8 8"]
    labels: Int[np.ndarray, " n"]
    rows: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def flat(self) -> Float[np.ndarray, "n 64"]:
        """Images as rows of pixels."""
        return self.images.reshape(len(self), -1)

    def take(self, chosen: Int[np.ndarray, " m"] | Bool[np.ndarray, " n"]) -> Digits:
        """The chosen digits, in the order given."""
        return Digits(self.images[chosen], self.labels[chosen], self.rows[chosen])

    def split(self, sizes: Sequence[int], rng: np.random.Generator) -> tuple[Digits, ...]:
        """Disjoint random parts, each with the classes in their overall proportions as nearly as whole numbers allow.

        Raises:
            ValueError: If the sizes sum to more digits than there are.
        """
        if sum(sizes) > len(self):
            raise ValueError(f"parts of {list(sizes)} need {sum(sizes)} digits, there are {len(self)}")
        # Digits of one class are spread evenly over [0, 1): every stretch of the sorted order has all classes.
        position = np.empty(len(self))
        for label in range(CLASSES):
            members = rng.permutation(np.flatnonzero(self.labels == label))
            position[members] = (np.arange(len(members)) + rng.random()) / max(len(members), 1)
        order = np.argsort(position)
        ends = np.cumsum(sizes)
        return tuple(self.take(rng.permutation(order[end - size : end])) for size, end in zip(sizes, ends, strict=True))


def digits() -> Digits:
    """All digits, in scikit-learn's order.

    Source: UCI "Optical Recognition of Handwritten Digits" test set, as ``sklearn.datasets.load_digits`` ships it.
    """
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return Digits(bunch.images / 16.0, bunch.target.astype(np.int64), np.arange(len(bunch.target)))


def flip_labels(
    labels: Int[np.ndarray, " n"], share: float, rng: np.random.Generator, *, classes: int = CLASSES
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Labels of which a share, chosen at random, is replaced by another class, uniformly; and which ones.

    Raises:
        ValueError: If the share is not in [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}")
    flipped = np.zeros(len(labels), dtype=bool)
    flipped[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shifted = (labels + rng.integers(1, classes, len(labels))) % classes
    return np.where(flipped, shifted, labels), flipped


def point_sets(
    images: Float[np.ndarray, "n height width"], points: int, rng: np.random.Generator
) -> Float[np.ndarray, "n points 2"]:
    """Points drawn from images as from densities: pixels in proportion to intensity, uniform within the pixel.

    Coordinates are (right, up), the image filling [-1, 1]^2.

    Raises:
        ValueError: If an image is blank, naming the first.
    """
    n, height, width = images.shape
    mass = images.reshape(n, -1)
    total = mass.sum(1)
    if (total <= 0).any():
        raise ValueError(f"image {int((total <= 0).argmax())} is blank: no points can be drawn from it")
    cumulative = np.cumsum(mass / total[:, None], axis=1)
    draws = rng.random((n, points))
    pixel = np.stack([np.searchsorted(row, draw, side="right") for row, draw in zip(cumulative, draws, strict=True)])
    row, column = np.divmod(np.minimum(pixel, height * width - 1), width)
    right = (column + rng.random((n, points))) / width
    down = (row + rng.random((n, points))) / height
    return np.stack([2 * right - 1, 1 - 2 * down], axis=-1)


def quadrants(flat: Float[np.ndarray, "n pixels"]) -> Int[np.ndarray, " n"]:
    """User group 0 to 3 of each digit: the signs of its first two principal scores.

    Groups by looks rather than by class: the other natural grouping is ``labels`` itself.
    """
    centred = flat - flat.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    # The sign of a singular vector is arbitrary: its largest entry is made positive.
    leading = directions[:2] * np.sign(directions[:2][np.arange(2), np.abs(directions[:2]).argmax(1)])[:, None]
    positive = centred @ leading.T > 0
    return (2 * positive[:, 0] + positive[:, 1]).astype(np.int64)
