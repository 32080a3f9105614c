"""Label the heads of a model: positional, symbolic, mixed or flat, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from gnomon.evidence.resampling import RESAMPLES, multinomial_weights
from gnomon.mechanisms.rope_heads.measure import ENERGIES, LayerSums, head_rows, measure_heads, query_positions
from gnomon.models.load import start_token

SUMS = ("positional", "symbolic", "zero", "total", "row", "column")


@dataclass(frozen=True)
class HeadProfile:
    """What every head of a model looks at.

    Args:
        scores: One row a head: ``layer``, ``head``, ``positional``, ``symbolic``, ``balance``, ``row``, ``column``
            (shares of variance), ``low``, ``high`` (share of logit energy by frequency), ``lo``, ``hi`` (95 % interval
            of positional - symbolic over prompts), ``label``.
        sums: One row a prompt and head, of which the scores are ratios of sums.
        energy: Logit energy (second moment) of every frequency, summed over prompts.
        curve: Balance of every frequency alone, averaged over heads and prompts. Arithmetic of RoPE, not learned.
        frequencies: Angle a position.
        capture_error: Largest difference between rebuilt and own attention pattern.
        prompts: Prompts used.
        skipped: Prompts that were too short.
        dropped: Keys not seen because of sliding windows.
    """

    scores: pd.DataFrame
    sums: pd.DataFrame
    energy: Float[np.ndarray, "layer head frequency"]
    curve: Float[np.ndarray, "layer frequency"]
    frequencies: Float[np.ndarray, "layer frequency"]
    capture_error: float
    prompts: int
    skipped: int
    dropped: int

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {label}" for label, count in self.scores["label"].value_counts().items())
        return f"HeadProfile({len(self.scores)} heads: {counts}; {self.prompts} prompts)"


@dataclass(frozen=True)
class HeadProfiler:
    """Profile a rotary decoder on texts.

    Args:
        model: A plain transformers decoder with rotary embeddings.
        tokenizer: Its tokenizer.
        queries_per_prompt: Queries, evenly spaced over the second half of each prompt.
        skip_first: Keys at the start of every prompt that are left out (the attention sink).
        include_self: Whether a query sees its own key.
        max_length: Longer texts are cut to so many tokens.
        dtype: To compute tables in.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    queries_per_prompt: int = 4
    skip_first: int = 1
    include_self: bool = False
    max_length: int = 128
    dtype: torch.dtype = torch.float64

    def profile(self, texts: Sequence[str]) -> HeadProfile:
        """Scores, labels and frequency use of every head. Texts of equal length in tokens share a forward pass.

        Raises:
            ValueError: If no text is long enough, or the model has no fixed rotary embedding.
            CaptureError: If the attention pattern cannot be rebuilt from what was captured.
        """
        _, start = start_token(self.tokenizer)
        front = [] if start is None else [start]
        by_length: dict[int, list[list[int]]] = {}
        for text in texts:
            ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            tokens = (front + ids)[: self.max_length]
            by_length.setdefault(len(tokens), []).append(tokens)
        shortest = self.skip_first + 5
        usable = {length: prompts for length, prompts in sorted(by_length.items()) if length >= shortest}
        if not usable:
            raise ValueError(f"no text has {shortest} tokens or more (skip_first={self.skip_first} and 5 others)")
        return self._profile(usable, skipped=len(texts) - sum(map(len, usable.values())))

    def profile_tokens(self, input_ids: Int[Tensor, "prompt position"]) -> HeadProfile:
        """As :meth:`profile`, for prompts of equal length that already are tokens, start token included."""
        return self._profile({input_ids.shape[1]: input_ids.tolist()}, skipped=0)

    def _profile(self, by_length: dict[int, list[list[int]]], *, skipped: int) -> HeadProfile:
        return _profile(
            [self._measure(length, prompts) for length, prompts in by_length.items()],
            context=max(by_length) - self.skip_first - 1 + self.include_self,
            prompts=[len(prompts) for prompts in by_length.values()],
            skipped=skipped,
        )

    def _measure(self, length: int, prompts: list[list[int]]) -> list[LayerSums]:
        queries = query_positions(
            length, self.queries_per_prompt, skip_first=self.skip_first, include_self=self.include_self
        )
        return measure_heads(
            self.model,
            torch.tensor(prompts),
            queries,
            skip_first=self.skip_first,
            include_self=self.include_self,
            dtype=self.dtype,
        )


def label_heads(sums: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Scores and labels of heads from their sums by prompt.

    A head is ``positional`` if the 95 % bootstrap interval of positional - symbolic over prompts lies above 0, its
    positional score exceeds .5, and the analysis of variance agrees (``row > column``); ``symbolic`` likewise;
    ``flat`` if its logits hardly differ (``D_0`` below a millionth of the median head's); else ``mixed``.

    Args:
        sums: Rows of :func:`~gnomon.mechanisms.rope_heads.measure.head_rows`.
        resamples: Bootstrap draws.
        seed: Of the bootstrap.

    Returns:
        One row a head, with the columns of ``HeadProfile.scores``; ``lo`` and ``hi`` are NaN, and no head is labelled
        positional or symbolic, if there is one prompt only.
    """
    columns = [*SUMS, *(f"{name}_{band}" for name in ENERGIES for band in ("low", "high"))]
    totals = pd.DataFrame(sums.groupby(["layer", "head"], as_index=False)[columns].sum())
    flat = totals["zero"] < 1e-6 * totals["zero"].median()
    spread = totals["zero"].where(totals["zero"] > 0)
    variance = totals["total"].where(totals["total"] > 0)
    moved = totals["positional"] + totals["symbolic"]
    energy = totals["second_moment_low"] + totals["second_moment_high"]
    scored = pd.DataFrame(
        {
            "layer": totals["layer"],
            "head": totals["head"],
            "positional": 1 - totals["positional"] / spread,
            "symbolic": 1 - totals["symbolic"] / spread,
            "balance": totals["symbolic"] / moved.where(moved > 0),
            "row": totals["row"] / variance,
            "column": totals["column"] / variance,
            "low": totals["second_moment_low"] / energy,
            "high": totals["second_moment_high"] / energy,
        }
    )
    scored["lo"], scored["hi"] = _lead_interval(sums, resamples, seed)
    positional = (scored["lo"] > 0) & (scored["positional"] > 0.5) & (scored["row"] > scored["column"])
    symbolic = (scored["hi"] < 0) & (scored["symbolic"] > 0.5) & (scored["row"] < scored["column"])
    scored["label"] = np.select([flat, positional, symbolic], ["flat", "positional", "symbolic"], default="mixed")
    return scored


def _lead_interval(sums: pd.DataFrame, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval over prompts of positional - symbolic = (D_sym - D_pos) / D_0, a head each."""
    cells = sums.sort_values(["prompt", "layer", "head"])
    prompts = len(np.unique(cells["prompt"].to_numpy()))
    lead = (cells["symbolic"] - cells["positional"]).to_numpy().reshape(prompts, -1)
    zero = cells["zero"].to_numpy().reshape(prompts, -1)
    if prompts < 2:
        nothing = np.full(lead.shape[1], np.nan)
        return nothing, nothing
    weights = multinomial_weights(prompts, resamples, seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (weights @ lead) / (weights @ zero)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return low, high


def _profile(groups: list[list[LayerSums]], *, context: int, prompts: list[int], skipped: int) -> HeadProfile:
    firsts = np.cumsum([0, *prompts[:-1]])
    frames = [
        head_rows(group, context=context, first_prompt=int(first)) for group, first in zip(groups, firsts, strict=True)
    ]
    sums = pd.concat(frames, ignore_index=True)
    layers = list(zip(*groups, strict=True))
    return HeadProfile(
        scores=label_heads(sums),
        sums=sums,
        energy=np.stack([torch.cat([part.energy.second_moment for part in parts]).sum(0).numpy() for parts in layers]),
        curve=np.stack([torch.cat([part.balance for part in parts]).nanmean((0, 1)).numpy() for parts in layers]),
        frequencies=np.stack([parts[0].frequencies.numpy() for parts in layers]),
        capture_error=max(part.error for group in groups for part in group),
        prompts=sum(prompts),
        skipped=skipped,
        dropped=sum(part.dropped for group in groups for part in group),
    )
