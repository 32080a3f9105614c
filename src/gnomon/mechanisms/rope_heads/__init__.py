"""rope-heads: which attention heads look at where, which at what, and which rotary frequencies they use.

Scores every head of a decoder with rotary embeddings by what happens to its logits when the contents of the keys are
permuted: nothing (positional), or they travel with the contents (symbolic). The scores are exact expectations over all
permutations, and the queries and keys they are computed from rebuild the model's own attention pattern.

>>> from gnomon.models.load import load                                          # doctest: +SKIP
>>> loaded = load("smollm2")                                                     # doctest: +SKIP
>>> profile = HeadProfiler(loaded.model, loaded.tokenizer).profile(texts)        # doctest: +SKIP
>>> profile.scores.query("label == 'positional'")[["layer", "head", "balance"]]  # doctest: +SKIP

Paper: Urrutia et al. (2025), "Decoupling Positional and Symbolic Attention Behavior in Transformers", arXiv 2511.11579.
"""

from gnomon.mechanisms.rope_heads.ablation import without_frequencies
from gnomon.mechanisms.rope_heads.frequencies import (
    FrequencyEnergy,
    frequency_distances,
    frequency_energy,
    low_high,
    turning_frequencies,
)
from gnomon.mechanisms.rope_heads.measure import LayerSums, measure_heads, query_positions
from gnomon.mechanisms.rope_heads.profile import HeadProfile, HeadProfiler, label_heads
from gnomon.mechanisms.rope_heads.queries import RotaryLayer, capture_qk, for_each_layer
from gnomon.mechanisms.rope_heads.rotary import logit_table, rotate
from gnomon.mechanisms.rope_heads.scores import (
    BehaviourScores,
    Distances,
    TableVariance,
    behaviour_distances,
    behaviour_scores,
    exclusion_slack,
    permuted_distances,
    scores,
    table_variance,
)
from gnomon.mechanisms.rope_heads.toy import FrequencyHead, sample, train_heads

__all__ = [
    "BehaviourScores",
    "Distances",
    "FrequencyEnergy",
    "FrequencyHead",
    "HeadProfile",
    "HeadProfiler",
    "LayerSums",
    "RotaryLayer",
    "TableVariance",
    "behaviour_distances",
    "behaviour_scores",
    "capture_qk",
    "exclusion_slack",
    "for_each_layer",
    "frequency_distances",
    "frequency_energy",
    "label_heads",
    "logit_table",
    "low_high",
    "measure_heads",
    "permuted_distances",
    "query_positions",
    "rotate",
    "sample",
    "scores",
    "table_variance",
    "train_heads",
    "turning_frequencies",
    "without_frequencies",
]
