"""Exact scores of heads against the permutation loop that defines them, and against TransformerLens' head detector.

* ``ratio``: table, both scores and their normaliser in closed form, against 200 permutations with keys rotated anew
  each time (62 keys, 64 channels, float64, one thread). The loop's relative error is given too.
* ``detector``: an independent check that ``positional`` means what it says: rank correlation over heads of our balance
  with TransformerLens' previous-token score on random tokens, where content cannot help.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from gnomon.mechanisms.rope_heads.measure import measure_heads, query_positions
from gnomon.mechanisms.rope_heads.rotary import logit_table, rotate
from gnomon.mechanisms.rope_heads.scores import behaviour_distances, scores
from gnomon.models.capture import run_decoder
from gnomon.models.load import Loaded, bridge, load

KEYS, CHANNELS, PERMUTATIONS = 62, 64, 200
DETECTOR_PROMPTS, DETECTOR_LENGTH = 4, 64


def run() -> dict:
    """Milliseconds a head and query, ours and the loop's; check against the head detector; share of analysis."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(CHANNELS, generator=generator, dtype=torch.float64)
    keys = torch.randn(KEYS, CHANNELS, generator=generator, dtype=torch.float64)
    inv_freq = 1e5 ** -(torch.arange(CHANNELS // 2, dtype=torch.float64) * 2 / CHANNELS)
    head = (query, keys, inv_freq, torch.arange(1, KEYS + 1), KEYS + 1)
    exact = behaviour_distances(logit_table(*head, scale=0.125))
    sampled = _permutation_loop(*head)
    ours = _seconds(lambda: behaviour_distances(logit_table(*head, scale=0.125)), repeats=200)
    peer = _seconds(lambda: _permutation_loop(*head), repeats=3)
    loaded = load("smollm2")
    return {
        "name": "rope_heads",
        "ours": 1e3 * ours,
        "peer": 1e3 * peer,
        "ratio": peer / ours,
        "unit": f"milliseconds a head and query; peer: {PERMUTATIONS} permutations, rotating keys each time",
        "peer_error": abs(sampled / float(exact.positional) - 1),
        **_against_head_detector(loaded),
        **_analysis_share(loaded),
    }


def _permutation_loop(query, keys, inv_freq, positions, query_position) -> float:
    """D_pos as the paper defines it: permute the keys, rotate them, compare logits, average."""
    rng = torch.Generator().manual_seed(1)
    angles = positions.double()[:, None] * inv_freq
    turned = rotate(query, query_position * inv_freq)
    used = 0.125 * rotate(keys, angles) @ turned
    total = 0.0
    for _ in range(PERMUTATIONS):
        order = torch.randperm(len(keys), generator=rng)
        permuted = 0.125 * rotate(keys[order], angles) @ turned
        total += float((permuted - used).var(correction=0))
        # the symbolic distance and the normaliser need their own differences
        float((permuted - used[order]).var(correction=0))
        float((used[order] - used).var(correction=0))
    return total / PERMUTATIONS


def _against_head_detector(loaded: Loaded) -> dict:
    from transformer_lens.head_detector import detect_head

    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, 40_000, size=(DETECTOR_PROMPTS, DETECTOR_LENGTH)))
    measured = measure_heads(loaded.model, tokens, query_positions(DETECTOR_LENGTH, 2))
    balance = torch.stack([scores(layer.distances.sum(0)).balance for layer in measured]).flatten().numpy()
    lens = bridge(loaded)
    texts = [str(loaded.tokenizer.decode(row)) for row in tokens]
    detected = detect_head(lens, texts, "previous_token_head", exclude_bos=True, exclude_current_token=True)
    previous = detected.flatten().numpy()
    top = previous.argsort()[-10:]
    return {
        "detector_correlation": pd.Series(balance).corr(pd.Series(previous), method="spearman"),
        "balance_of_top_previous_token_heads": float(np.take(balance, top).mean()),
        "balance_of_all_heads": float(balance.mean()),
    }


def _analysis_share(loaded: Loaded) -> dict:
    """Time of a profile beyond the decoder's own forward pass, as a share of that pass."""
    tokens = torch.arange(8 * 64).view(8, 64) + 100
    queries = query_positions(64, 2)
    with torch.no_grad():
        run_decoder(loaded.model, tokens)
        forward = _seconds(lambda: run_decoder(loaded.model, tokens), repeats=3)
    whole = _seconds(lambda: measure_heads(loaded.model, tokens, queries), repeats=3)
    return {"forward_seconds": forward, "profile_seconds": whole, "overhead": whole / forward - 1}


def _seconds(action: Callable[[], object], *, repeats: int) -> float:
    """Median CPU seconds of one call, after a warm-up; CPU time, so that a busy machine does not decide the ratio."""
    action()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return float(np.median(taken))
