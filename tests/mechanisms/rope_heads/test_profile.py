"""Measured heads against tables built one by one, labels against planted sums, and the bad input users bring."""

import numpy as np
import pandas as pd
import pytest
import torch

from gnomon.data.corpora import prose
from gnomon.mechanisms.rope_heads.frequencies import frequency_energy
from gnomon.mechanisms.rope_heads.measure import (
    ENERGIES,
    balance_rows,
    energy_rows,
    head_rows,
    measure_heads,
    query_positions,
)
from gnomon.mechanisms.rope_heads.profile import HeadProfiler, label_heads
from gnomon.mechanisms.rope_heads.prompts import repeated_random_tokens, windows
from gnomon.mechanisms.rope_heads.queries import capture_qk
from gnomon.mechanisms.rope_heads.rotary import logit_table
from gnomon.mechanisms.rope_heads.scores import behaviour_distances
from gnomon.models.tiny import tiny_decoder


def tokens(prompts: int = 3, length: int = 24) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(3, 64, size=(prompts, length)))


def planted(values: dict[str, tuple[float, float, float]], prompts: int = 6) -> pd.DataFrame:
    """Sums of heads with the given (D_pos, D_sym, D_0), a little different on each prompt."""
    rows = []
    for head, (positional, symbolic, zero) in enumerate(values.values()):
        for prompt in range(prompts):
            factor = 1 + 0.05 * np.sin(prompt + head)
            sums = {"positional": positional * factor, "symbolic": symbolic * factor, "zero": zero}
            variance = {"total": 1.0, "row": symbolic / (positional + symbolic + 1e-12), "column": 0.3}
            energies = {f"{name}_{band}": 1.0 for name in ENERGIES for band in ("low", "high")}
            rows.append({"prompt": prompt, "layer": 0, "head": head, **sums, **variance, **energies})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("family", ["llama", "gpt-neox", "gemma2"])
def test_sums_equal_those_of_tables_built_one_by_one(family):
    model = tiny_decoder(family, initializer_range=0.3)
    measured = measure_heads(model, tokens(), [14, 23])
    for layer, captured in zip(measured, capture_qk(model, tokens()), strict=True):
        groups = captured.query.shape[1] // captured.key.shape[1]
        for prompt, head in [(0, 0), (2, 3)]:
            total, energy = 0.0, 0.0
            for at in (14, 23):
                first = max(1, at - 15) if captured.sliding_window else 1
                vectors = (
                    captured.query[prompt, head, at].double(),
                    captured.key[prompt, head // groups, first:at].double(),
                    captured.inv_freq,
                    torch.arange(first, at),
                    at,
                )
                table = logit_table(*vectors, scale=captured.scale, softcap=captured.softcap)
                total += float(behaviour_distances(table).symbolic)
                energy += frequency_energy(*vectors, scale=captured.scale).second_moment
            assert float(layer.distances.symbolic[prompt, head]) == pytest.approx(total, rel=1e-9)
            assert torch.allclose(layer.energy.second_moment[prompt, head], energy, rtol=1e-9)


def test_sliding_windows_drop_keys_and_say_so():
    sliding, full = measure_heads(tiny_decoder("gemma3", initializer_range=0.3), tokens(), [14, 23])
    assert (sliding.dropped, full.dropped) == (7, 0)  # window 16: the query at 23 loses keys 1 to 7


def test_rows_are_tidy_and_complete():
    model = tiny_decoder("phi", initializer_range=0.3)
    measured = measure_heads(model, tokens(), [14, 23])
    heads = head_rows(measured, context=22, first_prompt=5)
    assert len(heads) == 3 * 2 * 4
    assert sorted(set(heads["prompt"])) == [5, 6, 7]
    spectrum = energy_rows(measured)
    assert spectrum["theta"].min() == 0.0  # partial rotary: the unrotated channels are the slowest frequency
    for name in ENERGIES:
        split = (heads[f"{name}_low"] + heads[f"{name}_high"]).sum()
        assert float(spectrum[name].sum()) == pytest.approx(float(split), rel=1e-5)
    curve = balance_rows(measured)
    assert curve["balance"].between(0, 1).all()
    assert len(curve) == 3 * len(set(spectrum["theta"]))


def test_query_positions_lie_in_the_second_half():
    assert query_positions(64, 2) == [32, 63]
    assert query_positions(128, 4) == [64, 85, 106, 127]
    assert query_positions(6, 4) == [4, 5]
    with pytest.raises(ValueError, match=r"at least 3 keys before the query, got 2 \(query_position=3, skip_first=1\)"):
        query_positions(4, 1)


def test_labels_need_score_interval_and_variance_to_agree():
    found = label_heads(
        planted(
            {
                "positional": (0.1, 1.9, 2.0),
                "symbolic": (1.9, 0.1, 2.0),
                "mixed": (1.0, 1.0, 2.0),
                "low score": (1.5, 1.9, 2.0),
                "flat": (1e-9, 1e-9, 1e-9),
            }
        )
    )
    assert found["label"].tolist() == ["positional", "symbolic", "mixed", "mixed", "flat"]
    assert found.loc[0, "lo"] > 0 > found.loc[1, "hi"]
    assert found.loc[0, "positional"] == pytest.approx(0.95, abs=0.01)


def test_variance_that_disagrees_takes_the_label_away():
    rows = planted({"positional": (0.1, 1.9, 2.0), "other": (1.0, 1.0, 2.0)})
    rows.loc[rows["head"] == 0, ["row", "column"]] = [0.2, 0.6]
    assert label_heads(rows)["label"].tolist() == ["mixed", "mixed"]


def test_one_prompt_gives_scores_without_interval_or_label():
    found = label_heads(planted({"positional": (0.1, 1.9, 2.0)}, prompts=1))
    assert np.isnan(found.loc[0, "lo"])
    assert found.loc[0, "label"] == "mixed"


def test_profile_of_texts_of_different_lengths(tiny):
    texts = [*prose().texts[:3], "too short", " ".join(prose().texts[4].split()[:20])]
    profile = HeadProfiler(tiny.model, tiny.tokenizer, queries_per_prompt=2, max_length=32).profile(texts)
    assert (profile.prompts, profile.skipped) == (4, 1)
    assert profile.scores[["layer", "head"]].drop_duplicates().shape[0] == 36
    assert profile.energy.shape == (6, 6, 4)
    assert profile.curve.shape == profile.frequencies.shape == (6, 4)
    assert profile.capture_error < 1e-5
    assert repr(profile).startswith("HeadProfile(36 heads: ")
    assert np.isclose(profile.scores["low"] + profile.scores["high"], 1).all()


def test_profile_of_tokens_equals_that_of_their_text(tiny):
    text = prose().texts[0]
    ids = windows(tiny, [text], length=32, count=1)
    profiler = HeadProfiler(tiny.model, tiny.tokenizer, max_length=32)
    by_text, by_tokens = profiler.profile([text]), profiler.profile_tokens(ids)
    pd.testing.assert_frame_equal(by_text.scores, by_tokens.scores)


def test_texts_that_are_all_too_short_are_refused(tiny):
    with pytest.raises(ValueError, match=r"no text has 6 tokens or more \(skip_first=1 and 5 others\)"):
        HeadProfiler(tiny.model, tiny.tokenizer).profile(["one two", "three"])


def test_windows_take_turns_over_documents(tiny):
    words = prose().texts[0].split()
    first, second = " ".join(words[:30]), " ".join(words[30:50])
    found = windows(tiny, [first, second], length=11)
    assert found.shape == (5, 11)
    assert set(found[:, 0].tolist()) == {tiny.provenance.start_id}
    assert tiny.tokenizer.decode(found[1, 1:]) == " ".join(words[30:40])
    assert tiny.tokenizer.decode(found[2, 1:]) == " ".join(words[10:20])
    with pytest.raises(ValueError, match="the text holds 5 prompts of 11 tokens, 9 prompts needed"):
        windows(tiny, [first, second], length=11, count=9)


def test_repeated_tokens_repeat():
    found = repeated_random_tokens(50, prompts=4, half=8, rng=np.random.default_rng(0), start=1)
    assert found.shape == (4, 17)
    assert torch.equal(found[:, 1:9], found[:, 9:])
