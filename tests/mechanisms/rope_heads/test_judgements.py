"""Every claim's judge on worlds without and with the effect, and the verdict of worlds built by hand."""

import numpy as np
import pandas as pd
import pytest

from gnomon.evidence import Verdict, holm
from gnomon.evidence.calibration import assert_calibrated
from gnomon.mechanisms.rope_heads import judgements
from gnomon.mechanisms.rope_heads.measure import ENERGIES
from gnomon.mechanisms.rope_heads.study import RopeHeads
from gnomon.studies.unit import Tables

STUDY = RopeHeads()
CONFIG = RopeHeads.Config()
FAMILY = len(STUDY.claims) - 1
LAYERS, HEADS, COPIES = 20, 2, 2
ARMS = (("treatment", 1), ("random-init", COPIES), ("resampled", COPIES))


def heads_world(rng, *, spread=(1.0, 1.0), slope=(1.0, 1.0), noise=1.0) -> dict[str, pd.DataFrame]:
    """Heads whose logit balance has a layer and a head part; energy follows balance. Pairs are (trained, copies)."""
    frames = []
    for arm, copies in ARMS:
        which = 0 if arm == "treatment" else 1
        for copy in range(copies):
            layer = np.repeat(np.arange(LAYERS), HEADS)
            logit = 0.5 * rng.normal(size=LAYERS)[layer] + rng.normal(size=LAYERS * HEADS)
            balance = 1 / (1 + np.exp(-spread[which] * logit))
            ratio = -slope[which] * logit + noise * rng.normal(size=len(logit))
            frame = {"arm": arm, "copy": copy, "prompt": 0, "layer": layer, "head": np.tile(np.arange(HEADS), LAYERS)}
            frame |= {"positional": 1 - balance, "symbolic": balance, "zero": 1.0}
            frame |= {f"{name}_low": np.exp(ratio) for name in ENERGIES} | {f"{name}_high": 1.0 for name in ENERGIES}
            frames.append(pd.DataFrame(frame))
    return {"lm.heads": pd.concat(frames, ignore_index=True)}


def curve_world(rng, *, noise) -> dict[str, pd.DataFrame]:
    """Curves of balance by frequency; ``noise`` of (trained, copies) lowers their rank correlation."""
    frames = []
    prompt, theta = np.repeat(np.arange(8), 32), np.tile(np.arange(32.0), 8)
    for arm, copies in ARMS:
        for copy in range(copies):
            size = noise[0] if arm == "treatment" else noise[1]
            balance = theta + size * rng.normal(size=len(theta))
            frames.append(
                pd.DataFrame({"arm": arm, "copy": copy, "prompt": prompt, "theta": theta, "balance": balance})
            )
    return {"lm.curve": pd.concat(frames, ignore_index=True)}


def toy_world(rng, means) -> dict[str, pd.DataFrame]:
    """Accuracies of 8 seeds around the given means by (task, set)."""
    rows = [
        {"task": task, "set": name, "seed": seed, "accuracy": accuracy}
        for (task, name), centre in means.items()
        for seed, accuracy in enumerate(np.clip(rng.normal(centre, 0.02, 8), 0, 1))
    ]
    return {"toy": pd.DataFrame(rows)}


def ablation_world(rng, *, lead, gain=6.0) -> dict[str, pd.DataFrame]:
    """Losses of 12 prompts; positional heads lose ``lead`` standard deviations more than random sets."""
    rows = []
    base = {"first copy": 10.0, "second copy": 10.0 - gain, "prose": 3.0}
    wobble = {text: rng.normal(0, 0.3, 12) for text in base}
    for name in ("none", "positional", *map(str, range(15))):
        for band in ("high", "low"):
            for text, level in base.items():
                shift = 0.0 if name == "none" else rng.normal(0.2, 0.05) + 0.05 * lead * (name == "positional")
                rows += [
                    {
                        "set": name,
                        "size": 9,
                        "band": band,
                        "text": text,
                        "prompt": i,
                        "loss": level + wobble[text][i] + shift,
                    }
                    for i in range(12)
                ]
    return {"ablate": pd.DataFrame(rows)}


def check(claim, null, planted):
    judge = getattr(STUDY, f"judge_{claim.replace('-', '_')}")
    assert_calibrated(
        lambda frames: judge(Tables(frames), CONFIG),
        null=null,
        planted=planted,
        family=FAMILY,
    )


def test_spread_is_calibrated():
    check("spread", lambda rng: heads_world(rng), lambda rng: heads_world(rng, spread=(1.0, 0.25)))


def test_learned_frequency_use_is_calibrated():
    check(
        "learned-frequency-use",
        lambda rng: heads_world(rng, slope=(0.6, 0.6)),
        lambda rng: heads_world(rng, slope=(2.0, 0.2)),
    )


def test_frequency_arithmetic_is_calibrated():
    """The null of an equivalence is a difference at the margin: here correlations of about .86 and .97."""
    check(
        "frequency-arithmetic",
        lambda rng: curve_world(rng, noise=(5.5, 2.0)),
        lambda rng: curve_world(rng, noise=(2.0, 2.0)),
    )


ACCESS = {("index", "0"): 0.19, ("index", "2.5"): 0.79, ("retrieval", "0"): 1.0, ("retrieval", "2.5"): 0.46}
MIXED = {("recent", "0, 0"): 0.53, ("recent", "0.1, 0.1"): 0.82, ("recent", "0, 0.1"): 0.98}


def test_frequency_access_is_calibrated():
    check(
        "frequency-access",
        lambda rng: toy_world(rng, dict.fromkeys(ACCESS, 0.5)),
        lambda rng: toy_world(rng, ACCESS),
    )


def test_mixed_task_is_calibrated():
    check("mixed-task", lambda rng: toy_world(rng, dict.fromkeys(MIXED, 0.5)), lambda rng: toy_world(rng, MIXED))


def test_frequency_ablation_is_calibrated():
    check("frequency-ablation", lambda rng: ablation_world(rng, lead=0), lambda rng: ablation_world(rng, lead=6))


def test_one_task_alone_does_not_support_frequency_access():
    half = {**ACCESS, ("retrieval", "2.5"): 1.0}
    finding = STUDY.judge_frequency_access(Tables(toy_world(np.random.default_rng(0), half)), CONFIG)
    assert holm([finding])[0].verdict is Verdict.CONTRADICTED


def test_correlation_that_untrained_copies_share_is_not_learned():
    frames = heads_world(np.random.default_rng(0), slope=(2.0, 2.0))
    finding = STUDY.judge_learned_frequency_use(Tables(frames), CONFIG)
    assert holm([finding])[0].verdict is not Verdict.SUPPORTED
    by_name = {contrast.control: contrast for contrast in finding.contrasts}
    assert by_name["shuffled-energies"].p < 0.05  # against shuffled heads alone it would have looked learned
    for energy in ("second moment", "variance", "norm"):
        assert f"{energy} -0." in finding.reading


def exclusion_rows(*, cheat: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    where, what = rng.normal(size=(2, 200, 12))
    columns = {"positional": 2 * what.var(1), "symbolic": 2 * where.var(1), "zero": 2 * (where + what).var(1)}
    swapped = {f"swapped_{name}": columns[name] / 12 for name in ("positional", "symbolic")}
    frame = pd.DataFrame({"arm": "treatment", "prompt": np.arange(200), "layer": 0, "head": 0, **columns, **swapped})
    frame.loc[7, ["positional", "symbolic"]] *= cheat
    return frame


def test_exclusion_is_supported_when_nothing_crosses_the_bound():
    finding = judgements.exclusion(STUDY.claim("exclusion"), exclusion_rows(), scope="")
    assert finding.verdict is Verdict.SUPPORTED
    assert (finding.exact.instances, finding.exact.violations) == (200, 0)


def test_one_head_beyond_the_bound_contradicts_exclusion():
    finding = judgements.exclusion(STUDY.claim("exclusion"), exclusion_rows(cheat=0.01), scope="")
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.exact.violations == 1


def test_exclusion_needs_its_broken_variant_to_be_caught():
    rows = exclusion_rows()
    rows[["swapped_positional", "swapped_symbolic"]] = rows[["positional", "symbolic"]]
    assert judgements.exclusion(STUDY.claim("exclusion"), rows, scope="").verdict is Verdict.INCONCLUSIVE


def test_a_model_without_induction_fails_the_gate():
    frames = ablation_world(np.random.default_rng(0), lead=6, gain=0.2)
    finding = STUDY.judge_frequency_ablation(Tables(frames), CONFIG)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "nats better, needs >= 1" in finding.reason


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_presets_are_within_their_token_budget(preset):
    """Forward tokens of the default model: 30 thousand in quick, 0.8 million in full."""
    config = RopeHeads.Config.preset(preset)
    arms = 1 + 2 * config.copies + config.shuffled_words
    measured = arms * config.prompts * config.length
    sets = config.ablation_draws + 2 if config.ablation_draws else 0
    ablated = sets * 2 * config.ablation_prompts * 2.5 * config.length
    assert measured + ablated <= {"quick": 30_000, "full": 800_000}[preset]
