"""The study: do a language model's heads split into positional and symbolic, and is that learned or arithmetic?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from gnomon.data.corpora import Corpus, prose
from gnomon.evidence import Claim, Finding
from gnomon.evidence.nulls import matched_random_sets
from gnomon.mechanisms.rope_heads import judgements
from gnomon.mechanisms.rope_heads.ablation import without_frequencies
from gnomon.mechanisms.rope_heads.frequencies import turning_frequencies
from gnomon.mechanisms.rope_heads.measure import balance_rows, energy_rows, head_rows, measure_heads, query_positions
from gnomon.mechanisms.rope_heads.profile import label_heads
from gnomon.mechanisms.rope_heads.prompts import repeated_random_tokens, windows
from gnomon.mechanisms.rope_heads.queries import model_frequencies
from gnomon.mechanisms.rope_heads.toy import train_heads
from gnomon.models.load import Loaded, load, weights_id
from gnomon.models.randomize import randomize
from gnomon.models.scoring import example_losses
from gnomon.studies.study import Paper, Study, StudyConfig
from gnomon.studies.unit import Gated, Tables, Unit, UnitRun

SKIP_FIRST = 1
CONTROLS = ("random-init", "resampled")


class RopeHeads(Study):
    """Do attention heads split into those that look at where and those that look at what, and is it learned?"""

    name = "rope-heads"
    title = "Attention heads that look at where, and heads that look at what"
    wing = "mechanisms"
    paper = Paper(
        "Decoupling Positional and Symbolic Attention Behavior in Transformers",
        "Urrutia, Salas, Kozachinskiy, Buc Calderon, Pasten & Rojas",
        arxiv="2511.11579",
    )
    claims = (
        Claim(
            "exclusion",
            "No head is positional and symbolic at once, unless all its logits are equal",
            kind="exact",
            statistic="sqrt(D_pos) + sqrt(D_sym) >= sqrt(D_0)",
            unit="head on one prompt",
            paper_ref="exclusion principle",
            paper_value="proved",
        ),
        Claim(
            "frequency-arithmetic",
            "That fast frequencies behave positionally and slow ones symbolically is arithmetic of RoPE, not learned",
            kind="equivalence",
            statistic="Spearman correlation of balance and frequency, by prompt",
            controls=("random-init",),
            unit="prompt",
            margin=0.1,
            paper_ref="frequency-restricted scores",
            paper_value="scores follow frequency",
        ),
        Claim(
            "learned-frequency-use",
            "In a trained model, heads that spend their logits on slow frequencies are symbolic, beyond what any "
            "weights would show",
            kind="contrast",
            statistic="Fisher z of the Spearman correlation over heads of balance and log low/high logit energy",
            controls=("random-init", "resampled", "shuffled-energies"),
            unit="layer",
            expect="less",
            paper_ref="correspondence of frequency use and behaviour",
            paper_value="strong correspondence",
        ),
        Claim(
            "spread",
            "Training spreads heads over the positional-symbolic plane",
            kind="contrast",
            statistic="inter-decile range of balance over heads",
            controls=CONTROLS,
            unit="layer",
            paper_ref="plane of heads",
            paper_value="heads all over the plane",
        ),
        Claim(
            "frequency-access",
            "A head solves a positional task only with a frequency that turns, a symbolic one only with one that does "
            "not",
            kind="contrast",
            statistic="accuracy",
            controls=("index-without-turning", "retrieval-without-still"),
            unit="seed",
            smallest=0.1,
            paper_ref="canonical tasks",
            paper_value="performance follows frequency access",
        ),
        Claim(
            "mixed-task",
            "A task that needs content and order needs a frequency that turns and one that does not",
            kind="contrast",
            statistic="accuracy",
            controls=("still-only", "turning-only"),
            unit="seed",
            smallest=0.02,
            paper_ref="canonical tasks (mixed)",
            paper_value="both needed",
        ),
        Claim(
            "frequency-ablation",
            "Stopping the turning frequencies of positional heads costs more on repeated random tokens than stopping "
            "those of random heads of the same layers",
            kind="randomisation",
            statistic="increase of loss in nats a token on the second copy",
            controls=("matched-random",),
            unit="random set of heads",
            gate="the model predicts the second copy at least 1 nat better than the first",
            paper_ref="beyond the paper",
        ),
    )

    class Config(StudyConfig):
        """Settings of a run."""

        presets: ClassVar = {
            "quick": {
                "claims": ("exclusion", "frequency-arithmetic", "learned-frequency-use", "spread", "frequency-access"),
                "prompts": 8,
                "length": 64,
                "shuffled_words": False,
                "slots": 16,
                "steps": 400,
                "sweep": (0.0, 2.5),
                "ablation_draws": 0,
            },
            "full": {},
        }

        model: str = Field("smollm2", description="A hub id, folder or GGUF file of a decoder with RoPE.")
        prompts: int = Field(48, ge=5, description="Prompts, cut from the package's own prose.")
        length: int = Field(128, ge=16, description="Tokens a prompt. Compare models at the same length only.")
        queries: int = Field(2, ge=1, description="Queries a prompt, over its second half.")
        copies: int = Field(5, ge=1, description="Draws of each randomised control.")
        chunk: int = Field(24, ge=1, description="Prompts a unit.")
        shuffled_words: bool = Field(True, description="Also measure the trained model on prompts without syntax.")
        slots: int = Field(32, ge=4, multiple_of=2, description="Slots in the toy tasks' context.")
        steps: int = Field(1200, ge=1, description="Training steps of the toy heads.")
        toy_seeds: int = Field(8, ge=2, description="Toy heads trained for each task and set of frequencies.")
        sweep: tuple[float, ...] = Field((0.0, 0.03, 0.1, 0.3, 1.0, 2.5), description="Toy frequencies, slowest first.")
        ablation_draws: int = Field(15, ge=0, description="Random sets of heads; 0 leaves the ablation out.")
        ablation_prompts: int = Field(12, ge=1, description="Prompts of each kind in the ablation.")

    def units(self, config: Config) -> Iterable[Unit]:
        """Language model and its randomised copies by chunk of prompts, toy heads, ablations."""
        model = {"model": config.model, "weights": weights_id(config.model), "text": prose().sha256[:12]}
        measured = list(_language_units(config, model))
        yield from measured
        for task, frequencies in toy_cells(config):
            params = {"task": task, "frequencies": list(frequencies), "slots": config.slots, "steps": config.steps}
            yield Unit("toy", {**params, "seeds": config.toy_seeds}, seconds=config.slots * config.steps / 1500)
        trained = tuple(unit for unit in measured if unit.params["arm"] == "treatment")
        if config.ablation_draws:
            for heads in ("none", "positional", *map(str, range(config.ablation_draws))):
                params = {**model, "heads": heads, "prompts": config.ablation_prompts, "length": config.length}
                yield Unit("ablate", params, needs=trained, seconds=config.ablation_prompts * config.length / 100)

    def measure_lm(self, unit: Unit, run: UnitRun) -> dict[str, pd.DataFrame]:
        """All heads of the model, or of a randomised copy, on a chunk of prompts."""
        params = unit.params
        loaded = load(params["model"])
        run.note(params["model"], loaded.provenance.to_dict())
        corpus = prose()
        if params["arm"] == "shuffled-words":
            corpus = corpus.shuffled_words(run.rng("shuffled-words"))
        first, last = params["first"], params["last"]
        prompts = windows(loaded, varied(corpus), length=params["length"], count=last)[first:]
        model = loaded.model
        if params["arm"] in CONTROLS:
            seed = int(run.rng(params["arm"], params["copy"]).integers(2**31))
            model = randomize(model, params["arm"], seed=seed)
        queries = query_positions(params["length"], params["queries"], skip_first=SKIP_FIRST)
        layers = measure_heads(model, prompts, queries, skip_first=SKIP_FIRST)
        context = params["length"] - 1 - SKIP_FIRST
        errors = [{"layer": layer.layer, "error": layer.error, "dropped_keys": layer.dropped} for layer in layers]
        return {
            "heads": head_rows(layers, context=context, first_prompt=first),
            "energy": energy_rows(layers),
            "curve": balance_rows(layers, first_prompt=first),
            "check": pd.DataFrame(errors),
        }

    def measure_toy(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Accuracy of toy heads that may use the given frequencies."""
        params = unit.params
        first = int(run.rng("toy").integers(2**31))
        accuracy = train_heads(
            params["task"],
            params["frequencies"],
            seeds=range(first, first + params["seeds"]),
            slots=params["slots"],
            values=16,
            steps=params["steps"],
        )
        frequencies = ", ".join(f"{frequency:g}" for frequency in params["frequencies"])
        return pd.DataFrame({"set": frequencies, "seed": range(params["seeds"]), "accuracy": accuracy})

    def measure_ablate(self, unit: Unit, run: UnitRun) -> pd.DataFrame:
        """Loss of the trained model with frequencies taken from positional heads, or from matched random ones."""
        params = unit.params
        loaded = load(params["model"])
        sums = pd.concat([run.need(need).tables["lm.heads"] for need in unit.needs], ignore_index=True)
        heads = heads_to_ablate(label_heads(sums), params["heads"], run.rng("matched-random", params["heads"]))
        texts = ablation_texts(loaded, params["prompts"], params["length"], run.rng("repeated-tokens"))
        inv_freq = model_frequencies(loaded.model)[0]
        high = turning_frequencies(inv_freq, params["length"] - 1 - SKIP_FIRST)
        rows = []
        for band, removed in (("high", high), ("low", ~high)):
            with without_frequencies(loaded.model, heads, removed):
                for text, (sequences, scored) in texts.items():
                    losses = example_losses(loaded.model, sequences.tolist(), starts=[scored] * len(sequences))
                    rows += [
                        {
                            "set": params["heads"],
                            "size": len(heads),
                            "band": band,
                            "text": text,
                            "prompt": i,
                            "loss": x,
                        }
                        for i, x in enumerate(losses)
                    ]
        return pd.DataFrame(rows)

    def judge_exclusion(self, tables: Tables, config: Config) -> Finding:
        """No head of any arm on any prompt crosses the bound; the broken variant does."""
        return judgements.exclusion(self.claim("exclusion"), tables["lm.heads"], scope=_scope(config))

    def judge_frequency_arithmetic(self, tables: Tables, config: Config) -> Finding:
        """Trained and re-initialised models order the frequencies alike."""
        return judgements.frequency_arithmetic(
            self.claim("frequency-arithmetic"), tables["lm.curve"], scope=_scope(config)
        )

    def judge_learned_frequency_use(self, tables: Tables, config: Config) -> Finding:
        """The correspondence of frequency use and behaviour exceeds that of three nulls."""
        return judgements.learned_frequency_use(
            self.claim("learned-frequency-use"), tables["lm.heads"], scope=_scope(config)
        )

    def judge_spread(self, tables: Tables, config: Config) -> Finding:
        """Balance varies more over heads than in randomised copies."""
        return judgements.spread(self.claim("spread"), tables["lm.heads"], scope=_scope(config))

    def judge_frequency_access(self, tables: Tables, config: Config) -> Finding:
        """Each task fails with the other frequency."""
        return judgements.frequency_access(self.claim("frequency-access"), tables["toy"], slots=config.slots)

    def judge_mixed_task(self, tables: Tables, config: Config) -> Finding:
        """Both frequencies beat either alone, at equal size."""
        return judgements.mixed_task(self.claim("mixed-task"), tables["toy"], slots=config.slots)

    def judge_frequency_ablation(self, tables: Tables, config: Config) -> Finding:
        """Positional heads lose more with their fast frequencies than random heads do."""
        return judgements.frequency_ablation(
            self.claim("frequency-ablation"),
            tables["ablate"],
            scope=f"{config.model}, {config.ablation_prompts} prompts",
        )

    def charts(self, tables: Tables, findings: list[Finding]) -> dict[str, Any]:  # noqa: ARG002
        """The six figures, controls beside the trained model."""
        from gnomon.mechanisms.rope_heads.figures import charts

        return charts(tables)


def varied(corpus: Corpus) -> list[str]:
    """Texts in an order in which also the first few are of several kinds (documents are sorted by kind)."""
    return [document.text for document in sorted(corpus.documents, key=lambda document: document.split)]


def toy_cells(config: RopeHeads.Config) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Task and frequencies of every toy unit; the mixed task, on nets of equal size, only if it is judged."""
    for task in ("index", "retrieval"):
        yield from ((task, (frequency,)) for frequency in config.sweep)
    if not config.claims or "mixed-task" in config.claims:
        yield from (("recent", frequencies) for frequencies in ((0.0, 0.0), (0.1, 0.1), (0.0, 0.1)))


def heads_to_ablate(labelled: pd.DataFrame, which: str, rng: np.random.Generator) -> list[tuple[int, int]]:
    """No head (``"none"``), the ``"positional"`` ones, or, for a number, a random set of others in the same layers.

    In a layer where positional heads are the majority, only as many of them are taken as there are others, the most
    positional first, so that both sets have the same size in every layer.

    Raises:
        Gated: If fewer than three heads are labelled positional.
    """
    if which == "none":
        return []
    layers, heads = labelled["layer"].to_numpy(), labelled["head"].to_numpy()
    positional = (labelled["label"] == "positional").to_numpy()
    by_score = np.argsort(-labelled["positional"].to_numpy(), kind="stable")
    chosen: list[int] = []
    for layer in np.unique(layers):
        candidates = [index for index in by_score if positional[index] and layers[index] == layer]
        chosen += candidates[: int((~positional & (layers == layer)).sum())]
    if len(chosen) < 3:
        raise Gated(f"{len(chosen)} heads are labelled positional, needs >= 3")
    if which != "positional":
        chosen = matched_random_sets(chosen, layers, 1, rng, exclude=np.flatnonzero(positional))[0].tolist()
    return [(int(layers[index]), int(heads[index])) for index in chosen]


def ablation_texts(
    loaded: Loaded, prompts: int, length: int, rng: np.random.Generator
) -> dict[str, tuple[Int[Tensor, "prompt position"], int]]:
    """Prompts by name, with the first position that is scored: two copies of random tokens, and prose."""
    start = loaded.provenance.start_id
    half = (length - 1) // 2
    repeated = repeated_random_tokens(len(loaded.tokenizer), prompts=prompts, half=half, rng=rng, start=start)
    front = repeated.shape[1] - 2 * half
    return {
        "first copy": (repeated[:, : front + half], max(front, 1)),
        # The first token of the second copy cannot be foreseen.
        "second copy": (repeated, front + half + 1),
        "prose": (windows(loaded, varied(prose()), length=length, count=prompts), 1),
    }


def _language_units(config: RopeHeads.Config, model: dict[str, Any]) -> Iterator[Unit]:
    arms = [("treatment", 0), *((arm, copy) for arm in CONTROLS for copy in range(config.copies))]
    if config.shuffled_words:
        arms.append(("shuffled-words", 0))
    for first in range(0, config.prompts, config.chunk):
        last = min(first + config.chunk, config.prompts)
        for arm, copy in arms:
            shape = {"length": config.length, "queries": config.queries, "first": first, "last": last}
            seconds = (last - first) * config.length / 200 + (arm in CONTROLS)
            yield Unit("lm", {**model, "arm": arm, "copy": copy, **shape}, seconds=seconds)


def _scope(config: RopeHeads.Config) -> str:
    return f"{config.model}, {config.prompts} prompts of {config.length} tokens"
