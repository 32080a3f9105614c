r"""Does an attention head look at *where* or at *what*? Exact scores of its table of logits.

The table of one head and one query holds at ``[i, j]`` the logit the query would give to the content of key ``j`` if it
stood at the position of key ``i``; its diagonal holds the logits the model really uses. Permuting the contents by
:math:`\sigma` gives the logits :math:`L_{i\sigma(i)}`. A *positional* head does not notice (rows are constant); a
*symbolic* head follows the contents (columns are constant).

With :math:`\sigma` uniform over all :math:`M!` permutations and the centred norm
:math:`|x|_c^2 = \operatorname{mean}_i (x_i - \bar x)^2`,

.. math::

    D_{pos} = E\,|L_{i\sigma(i)} - L_{ii}|_c^2, \qquad
    D_{sym} = E\,|L_{i\sigma(i)} - L_{\sigma(i)\sigma(i)}|_c^2, \qquad
    D_0 = E\,|L_{\sigma(i)\sigma(i)} - L_{ii}|_c^2 .

The norm is centred because softmax ignores a constant added to all logits of a query. The expectations need no
sampling: :math:`\sigma(i)` is uniform, and :math:`(\sigma(i), \sigma(i'))` is uniform over ordered pairs of distinct
keys, so each is a function of the row sums, column sums and squares of a table of differences
(:func:`permutation_distance`).

Source: Urrutia et al. (2025), "Decoupling Positional and Symbolic Attention Behavior in Transformers",
arXiv 2511.11579, for the behaviours and the exclusion principle; normalisation, closed forms and the inequality
:math:`\sqrt{D_{pos}} + \sqrt{D_{sym}} \ge \sqrt{D_0}` are derived here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Distances:
    """How far a head's logits are from invariant, from equivariant, and how far they could be; sums add up.

    Scores of several prompts or queries are the scores of the *summed* distances: the mean of ratios would be ruled
    by queries with nearly equal logits.

    Args:
        positional: :math:`D_{pos}`, 0 if and only if the head is purely positional.
        symbolic: :math:`D_{sym}`, 0 if and only if the head is purely symbolic.
        zero: :math:`D_0`, twice the variance of the logits in use.
    """

    positional: Float[Tensor, ...]
    symbolic: Float[Tensor, ...]
    zero: Float[Tensor, ...]

    def sum(self, dim: int | tuple[int, ...]) -> Distances:
        """Distances summed over prompts or queries."""
        return Distances(self.positional.sum(dim), self.symbolic.sum(dim), self.zero.sum(dim))


@dataclass(frozen=True)
class BehaviourScores:
    """Scores of one or many heads; NaN where all logits are equal.

    Args:
        positional: ``1 - D_pos / D_0``: 1 for a purely positional head, can be negative.
        symbolic: ``1 - D_sym / D_0``: 1 for a purely symbolic head, can be negative.
        balance: ``D_sym / (D_pos + D_sym)`` in ``[0, 1]``: 1 positional, 0 symbolic.
    """

    positional: Float[Tensor, ...]
    symbolic: Float[Tensor, ...]
    balance: Float[Tensor, ...]


@dataclass(frozen=True)
class TableVariance:
    """Two-way analysis of variance of a table ``L = mu + row + column + interaction``; sums add up.

    A second, independent summary: bounded, and robust to one outlying key.

    Args:
        total: Variance of all entries.
        row: Variance of the row means (position).
        column: Variance of the column means (content).
    """

    total: Float[Tensor, ...]
    row: Float[Tensor, ...]
    column: Float[Tensor, ...]

    @property
    def row_share(self) -> Float[Tensor, ...]:
        """Share of the variance that lies between positions; NaN where all logits are equal."""
        return self.row / _nan_where_zero(self.total)

    @property
    def column_share(self) -> Float[Tensor, ...]:
        """Share of the variance that lies between contents; NaN where all logits are equal."""
        return self.column / _nan_where_zero(self.total)

    @property
    def interaction_share(self) -> Float[Tensor, ...]:
        """The rest: neither position nor content alone."""
        return 1 - self.row_share - self.column_share


def permutation_distance(
    total_square: Float[Tensor, ...],
    row_sums: Float[Tensor, "... keys"],
    column_sums: Float[Tensor, "... keys"],
    *,
    shift_invariant: bool = True,
) -> Float[Tensor, ...]:
    r"""Expected squared distance of ``X[i, sigma(i)]`` from constant, over all permutations, from sums of ``X``.

    .. math::

        A = E \operatorname{mean}_i X_{i\sigma(i)}^2 = \frac{S_2}{M^2}, \qquad
        B = E (\operatorname{mean}_i X_{i\sigma(i)})^2
          = \frac{1}{M^2}\Bigl[\frac{S_2}{M} + \frac{S^2 - \sum_i R_i^2 - \sum_j C_j^2 + S_2}{M(M-1)}\Bigr]

    Args:
        total_square: :math:`S_2 = \sum_{ij} X_{ij}^2`.
        row_sums: :math:`R_i = \sum_j X_{ij}`.
        column_sums: :math:`C_j = \sum_i X_{ij}`.
        shift_invariant: ``A - B``, the distance up to a common constant; otherwise ``A``.

    Returns:
        The expectation, never negative. Cost :math:`O(M)`.
    """
    keys = row_sums.shape[-1]
    mean_square = total_square / keys**2
    if not shift_invariant:
        return mean_square
    total = row_sums.sum(-1)
    pairs = total**2 - (row_sums**2).sum(-1) - (column_sums**2).sum(-1) + total_square
    square_mean = (total_square / keys + pairs / (keys * (keys - 1))) / keys**2
    # A positive quantity computed as a difference: rounding may leave -1e-17.
    return (mean_square - square_mean).clamp(min=0)


def behaviour_distances(table: Float[Tensor, "... keys keys"], *, shift_invariant: bool = True) -> Distances:
    """The three expected distances of a table of logits, exact over all permutations, in :math:`O(M^2)`.

    Args:
        table: ``table[..., i, j]`` is the logit of the content of key ``j`` at the position of key ``i``.
        shift_invariant: Ignore a constant added to all logits of a query, as softmax does.

    Raises:
        ValueError: If the table is not square, has fewer than 3 keys, or is not finite.

    >>> where, what = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([2.0, 2.0, 8.0])
    >>> behaviour_distances(where[:, None] + what).positional == 2 * what.var(correction=0)
    tensor(True)
    """
    _require_table(table)
    table = table - table[..., :1, :1]  # removes a large common offset, and leaves exact zeros if all logits are equal
    used = table.diagonal(dim1=-2, dim2=-1)
    return Distances(
        positional=_distance(table - used[..., :, None], shift_invariant),
        symbolic=_distance(table - used[..., None, :], shift_invariant),
        zero=2 * used.var(dim=-1, correction=0),
    )


def swap_distances(table: Float[Tensor, "... keys keys"]) -> Distances:
    """A broken variant: distances averaged over single swaps of two keys, but set against all permutations.

    It is what an implementation computes that estimates the sensitivity by swapping a pair of keys and normalises by
    the spread of the logits. It breaks the exclusion inequality; the study uses it to show that its check can fail.
    """
    _require_table(table)
    table = table - table[..., :1, :1]
    used = table.diagonal(dim1=-2, dim2=-1)
    return Distances(
        positional=_swap_distance(table - used[..., :, None]),
        symbolic=_swap_distance(table - used[..., None, :]),
        zero=2 * used.var(dim=-1, correction=0),
    )


def scores(distances: Distances) -> BehaviourScores:
    """Positional score, symbolic score and balance of (summed) distances."""
    spread = _nan_where_zero(distances.zero)
    return BehaviourScores(
        positional=1 - distances.positional / spread,
        symbolic=1 - distances.symbolic / spread,
        balance=distances.symbolic / _nan_where_zero(distances.positional + distances.symbolic),
    )


def behaviour_scores(table: Float[Tensor, "... keys keys"], *, shift_invariant: bool = True) -> BehaviourScores:
    """Scores of a table of logits: :func:`scores` of :func:`behaviour_distances`.

    >>> pure_content = torch.tensor([0.0, 1.0, 5.0]).expand(3, 3)
    >>> behaviour_scores(pure_content)
    BehaviourScores(positional=tensor(-0.), symbolic=tensor(1.), balance=tensor(0.))
    """
    return scores(behaviour_distances(table, shift_invariant=shift_invariant))


def exclusion_slack(distances: Distances) -> Float[Tensor, ...]:
    r"""How far a head is from the exclusion bound; never negative, whatever the weights.

    By the triangle inequality in :math:`L^2` over keys and permutations,
    :math:`\sqrt{D_{pos}} + \sqrt{D_{sym}} \ge \sqrt{D_0}`: a head that is both positional and symbolic has equal
    logits. It holds for sums over prompts and queries too.

    Returns:
        :math:`(\sqrt{D_{pos}} + \sqrt{D_{sym}}) / \sqrt{D_0} - 1`; NaN where all logits are equal.
    """
    together = distances.positional.sqrt() + distances.symbolic.sqrt()
    return together / _nan_where_zero(distances.zero.sqrt()) - 1


def table_variance(table: Float[Tensor, "... keys keys"]) -> TableVariance:
    """Variance of the table, of its row means and of its column means (arguments as in ``behaviour_distances``)."""
    _require_table(table)
    table = table - table[..., :1, :1]
    return TableVariance(
        total=table.flatten(-2).var(dim=-1, correction=0),
        row=table.mean(dim=-1).var(dim=-1, correction=0),
        column=table.mean(dim=-2).var(dim=-1, correction=0),
    )


def permuted_distances(
    table: Float[Tensor, "... keys keys"], *, draws: int, generator: torch.Generator | None = None
) -> Distances:
    """Monte Carlo estimate of :func:`behaviour_distances`: the definition, read literally.

    For tests and the benchmark; its relative error falls as ``draws ** -0.5``.
    """
    _require_table(table)
    used = table.diagonal(dim1=-2, dim2=-1)
    positions = torch.arange(table.shape[-1])
    positional, symbolic, zero = (torch.zeros(table.shape[:-2], dtype=table.dtype) for _ in range(3))
    for _ in range(draws):
        order = torch.randperm(len(positions), generator=generator)
        permuted, moved = table[..., positions, order], used[..., order]
        positional += (permuted - used).var(dim=-1, correction=0) / draws
        symbolic += (permuted - moved).var(dim=-1, correction=0) / draws
        zero += (moved - used).var(dim=-1, correction=0) / draws
    return Distances(positional, symbolic, zero)


def _distance(difference: Float[Tensor, "... keys keys"], shift_invariant: bool) -> Float[Tensor, ...]:
    return permutation_distance(
        (difference**2).sum((-2, -1)), difference.sum(-1), difference.sum(-2), shift_invariant=shift_invariant
    )


def _swap_distance(difference: Float[Tensor, "... keys keys"]) -> Float[Tensor, ...]:
    """Mean over all swaps (i, j) of the centred square; the unswapped entries X[i, i] are 0."""
    keys = difference.shape[-1]
    total_square = (difference**2).sum((-2, -1))
    crossed = (difference * difference.mT).sum((-2, -1))
    swaps = keys * (keys - 1) / 2
    return ((total_square / keys - (total_square + crossed) / keys**2) / swaps).clamp(min=0)


def _nan_where_zero(value: Float[Tensor, ...]) -> Float[Tensor, ...]:
    return value.where(value > 0, torch.nan)


def _require_table(table: Tensor) -> None:
    if table.ndim < 2 or table.shape[-1] != table.shape[-2]:
        raise ValueError(f"table must be square (keys, keys) in its last two axes, got shape {tuple(table.shape)}")
    if table.shape[-1] < 3:
        raise ValueError(f"needs a table of at least 3 keys, got {table.shape[-1]}")
    if not torch.isfinite(table).all():
        first = (~torch.isfinite(table)).nonzero()[0].tolist()
        raise ValueError(f"table is not finite at index {first}")
