"""Decision trees, forests and boosted trees with sigmoid gates in place of their thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

Link = Literal["identity", "log-frequency", "binary-logit"]


@dataclass(frozen=True)
class NodeTable:
    """One tree: children (-1 at leaves), split feature and threshold, and the value of each node, ``(nodes, k)``."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray


class _Level(nn.Module):
    """The nodes of one depth, over all trees: which of them split, and the values of those that do not."""

    split: Tensor
    leaf: Tensor
    feature: Tensor
    threshold: Tensor
    value: Tensor

    def __init__(self, tables: list[NodeTable], nodes: list[tuple[int, int]], scale: np.ndarray) -> None:
        super().__init__()
        is_leaf = np.array([tables[tree].left[node] < 0 for tree, node in nodes])
        self.splits = [nodes[position] for position in np.flatnonzero(~is_leaf)]
        feature = np.array([tables[tree].feature[node] for tree, node in self.splits], dtype=np.int64)
        value = [tables[tree].value[node] for (tree, node), leaf in zip(nodes, is_leaf, strict=True) if leaf]
        self.register_buffer("split", torch.from_numpy(np.flatnonzero(~is_leaf)))
        self.register_buffer("leaf", torch.from_numpy(np.flatnonzero(is_leaf)))
        self.register_buffer("feature", torch.from_numpy(feature))
        thresholds = np.array([tables[tree].threshold[node] for tree, node in self.splits], dtype=np.float64)
        self.register_buffer("threshold", torch.from_numpy(thresholds / scale[feature]).unsqueeze(1))
        self.register_buffer("value", torch.from_numpy(np.array(value, dtype=np.float64)))


class RelaxedTrees(nn.Module):
    r"""Soft evaluation of trees: every split sends a row left with probability

    .. math:: g_s(x) = \sigma\!\left(\frac{\theta_s - x_{j(s)}}{\tau\, \sigma_{j(s)}}\right)

    and a leaf weighs the product of the gates on its path, so the output is differentiable and tends to the tree's own
    as :math:`\tau \to 0` (a row at the threshold goes left). Evaluation goes depth by depth over the nodes of all
    trees at once: rows x nodes products, no recursion over nodes.

    Args:
        tables: One a tree; their values are summed.
        scale: Standard deviation of each feature.
        tau: Gate width in standard deviations; a pair ``(first, last)`` is annealed over training.
        offset: Added to the sum, ``(k,)``.
        link: ``log-frequency`` turns summed class frequencies into log-probabilities, ``binary-logit`` a single score
            into two logits.
    """

    offset: Tensor
    scale: Tensor

    def __init__(
        self,
        tables: list[NodeTable],
        scale: Float[np.ndarray, " d"],
        *,
        tau: float | tuple[float, float] = 0.1,
        offset: np.ndarray | None = None,
        link: Link = "identity",
    ) -> None:
        super().__init__()
        self._tau = tau if isinstance(tau, tuple) else (tau, tau)
        if min(self._tau) <= 0:
            raise ValueError(f"tau must be > 0, got {tau}")
        self.tau = self._tau[1]
        self.link = link
        self.trees = len(tables)
        width = tables[0].value.shape[1]
        self.register_buffer("scale", torch.from_numpy(np.array(scale, dtype=np.float64)))
        self.register_buffer("offset", torch.from_numpy(np.zeros(width) if offset is None else offset))
        self.levels = nn.ModuleList()
        nodes = [(tree, 0) for tree in range(len(tables))]
        while nodes:
            level = _Level(tables, nodes, scale)
            self.levels.append(level)
            nodes = [(tree, int(tables[tree].left[node])) for tree, node in level.splits]
            nodes += [(tree, int(tables[tree].right[node])) for tree, node in level.splits]

    def anneal(self, progress: float) -> None:
        """Set the gate width for a share of training done: geometric from the first to the last ``tau``."""
        first, last = self._tau
        self.tau = first * (last / first) ** progress

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Soft outputs of a batch."""
        # Nodes by rows, so that picking a feature or a node copies one contiguous line. Features and thresholds are in
        # units of the gate's width, so that a gate costs one difference a node and row.
        columns = (x / (self.tau * self.scale)).T.contiguous()
        reach = columns.new_ones(self.trees, x.shape[0])
        total = self.offset.unsqueeze(1).expand(-1, x.shape[0])
        for level in self.levels:
            assert isinstance(level, _Level)
            if len(level.leaf):
                total = total + level.value.T @ reach.index_select(0, level.leaf)
            if len(level.split):
                gate = torch.sigmoid(level.threshold / self.tau - columns.index_select(0, level.feature))
                above = reach.index_select(0, level.split)
                left = above * gate
                reach = torch.cat([left, above - left])
        total = total.T
        if self.link == "log-frequency":
            return (total + 1e-6).log()
        if self.link == "binary-logit":
            return torch.cat([-total / 2, total / 2], dim=1)
        return total
