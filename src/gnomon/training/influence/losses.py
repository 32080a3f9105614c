"""Losses of single examples for Hugging Face models, for callers who bring no loss of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

IGNORED = -100


def model_losses(model: nn.Module, batch: Any) -> Float[Tensor, " example"]:
    r"""Loss of each example by the batch's ``labels``: mean token loss for a decoder, cross-entropy for a classifier.

    .. math:: \ell_i = \frac{1}{|S_i|} \sum_{t \in S_i} -\log p(x_{i,t} \mid x_{i,<t}), \qquad
        S_i = \{t \ge 1 : \mathrm{label}_{i,t} \ne -100\}

    The mean is over an example's own tokens. A trainer that averages over all tokens of the batch weights long
    examples more; bring your own loss to follow it.

    Args:
        model: Returns ``logits``; two axes for a classifier, three for a decoder.
        batch: Keyword arguments of the model, and ``labels``.

    Raises:
        ValueError: If the batch has no labels, or some example no labelled token.
    """
    if not isinstance(batch, Mapping) or "labels" not in batch:
        raise ValueError("without a loss function the batch must be a mapping with 'labels'; or give loss_fn=")
    labels = batch["labels"]
    logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.dim() == 2:
        return F.cross_entropy(logits, labels, reduction="none")
    following = labels[:, 1:]
    counted = following != IGNORED
    if not bool(counted.any(1).all()):
        raise ValueError(f"example {int((~counted.any(1)).nonzero()[0, 0])} of the batch has no labelled token")
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), following, ignore_index=IGNORED, reduction="none")
    return losses.sum(1) / counted.sum(1)
