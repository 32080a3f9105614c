"""Fit the offline judge: ``python -m gnomon.retrieval.veritrail.offline.fitting`` writes ``fitted.json``.

Only the ``fit`` half of the fact world is used; its relation families, templates and names are not those of the
``evaluation`` half on which the study tests the judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnomon.data.fact_world import Fact, FactWorld, Half
from gnomon.models.embeddings import Encoder, embed
from gnomon.retrieval.veritrail.generator import FINAL, Truth, make_process
from gnomon.retrieval.veritrail.offline.comparison import MISMATCHES, compare
from gnomon.retrieval.veritrail.offline.corpus import Corpus
from gnomon.retrieval.veritrail.offline.support import VETOED, Fitted, to_json
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex
from gnomon.retrieval.veritrail.statements import KINDS

PROCESSES = 24
_FLOOR = 0.2  # cosine below which a pair teaches nothing
_KEPT = 0.995  # share of supporting sentences that selection must keep
_INVENTED_WEIGHT = 0.25  # of a sentence of another relation: texts have fewer of them
_SAFETY = 0.9  # other texts paraphrase more freely than the fact world


def pairs(seeds: Iterable[int], *, half: Half = "fit", encoder: Encoder = "auto") -> tuple[pd.DataFrame, str]:
    """Claims beside sentences of generated processes.

    To the sentences of each process come, for every claim, sentences about the same names, place, day and amount but
    of another relation: without them every sentence that agrees in these would support.

    Args:
        seeds: One process each.
        half: Half of the fact world.
        encoder: See :func:`~gnomon.models.embeddings.embed`.

    Returns:
        One row a pair: ``seed, kind``, ``origin`` (the sentence is what the claim was falsified from), ``invented`` (it
        is of another relation), ``supports, cosine, recall``, the counts of mismatches, ``denies``, and ``likeness`` of
        counted things (NaN without); and the encoder's name.
    """
    rows: list[dict[str, Any]] = []
    name = ""
    for seed in seeds:
        process, truth = make_process(seed, half=half, kinds=KINDS, p_error=0.5, chunks=8)
        index = SentenceIndex(process)
        sentences = [sentence for sentence in index if sentence.node != FINAL]
        texts = [claim.text for claim in truth.texts]
        others = _other_relations(truth, FactWorld(half, seed=seed), np.random.default_rng((seed, 5)))
        told = [*(sentence.text for sentence in index), *(text for group in others for text in group)]
        corpus = Corpus(told, texts, encoder=encoder)
        name = corpus.encoder
        for number, known in enumerate(truth.claims):
            candidates = [*sentences, *(Sentence("", "", text, (0, 0)) for text in others[number])]
            frame = corpus.frame(known.claim.text)
            cosines = corpus.cosines([known.claim.text], [sentence.text for sentence in candidates])[0]
            for place in np.flatnonzero(cosines >= _FLOOR):
                sentence = candidates[place]
                comparison = compare(frame, corpus.frame(sentence.text), corpus.alike)
                said = truth.statements.get(sentence.id)
                source = truth.statements.get(known.root)
                rows.append(
                    {
                        "seed": seed,
                        "kind": known.kind,
                        "origin": said is not None and source is not None and said.core == source.core,
                        "invented": not sentence.id,
                        "supports": sentence.id in known.supporting,
                        "cosine": float(cosines[place]),
                        "recall": corpus.recall(known.claim.text, sentence.text),
                        **dict(zip(MISMATCHES, comparison.mismatches, strict=True)),
                        "denies": comparison.denies,
                        "likeness": _likeness(corpus, known.claim.text, sentence.text),
                    }
                )
    return pd.DataFrame(rows), name


def fit(table: pd.DataFrame, *, products: Iterable[str], knows_meanings: bool) -> Fitted:
    """Weights and thresholds from pairs.

    The threshold maximises balanced accuracy over all pairs; selection keeps 99.5 % of what supports, with a margin;
    what denies does so from the cosine that 95 % of the denied sentences reach. A veto should fire only where it is
    sure: counted things differ if they are less alike than any two of the ``products``, no two of which are the same.
    Sentence vectors that know no meanings do not tell.
    """
    from sklearn.linear_model import LogisticRegression

    supports = table["supports"].to_numpy()
    true: Any = table.loc[supports]
    denied: Any = table.loc[table["denies"] & table["origin"]]
    alike = 0.0
    if knows_meanings:
        vectors = embed(list(products)).vectors
        unlike = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
        alike = float(unlike.max())
        table = table.assign(counted=(table["likeness"] < alike).astype(int))
    features = table[["cosine", "recall", *MISMATCHES]].to_numpy(dtype=np.float64)
    model: Any = LogisticRegression(C=1.0, max_iter=1000).fit(
        features, supports, sample_weight=np.where(table["invented"], _INVENTED_WEIGHT, 1.0)
    )
    weights: list[float] = model.coef_[0].tolist()
    p = model.predict_proba(features)[:, 1]
    p = np.where(table[list(MISMATCHES)].any(axis=1), np.minimum(p, VETOED), p)
    return Fitted(
        intercept=float(model.intercept_[0]),
        cosine=weights[0],
        recall=weights[1],
        mismatches=dict(zip(MISMATCHES, weights[2:], strict=True)),
        threshold=_best_threshold(p, supports),
        select=_SAFETY * float(true["cosine"].quantile(1 - _KEPT)),
        deny=float(denied["cosine"].quantile(0.05)),
        alike=alike,
    )


def _best_threshold(p: np.ndarray, supports: np.ndarray) -> float:
    """Half-way between the two probabilities between which balanced accuracy is largest, never below the veto's cap."""
    levels = np.unique(p[p > VETOED])
    cuts = (levels[:-1] + levels[1:]) / 2
    accuracy = [((p[supports] >= cut).mean() + (p[~supports] < cut).mean()) / 2 for cut in cuts]
    return float(cuts[int(np.argmax(accuracy))])


def _other_relations(truth: Truth, world: FactWorld, rng: np.random.Generator) -> list[list[str]]:
    """For every claim two sentences of other relation families about its names, place, day and amount."""
    groups = []
    for known in truth.claims:
        fact: Fact = truth.statements[known.claim.sentence].fact
        families = [family for family in world.families if family != fact.family and family.money == fact.family.money]
        chosen = rng.choice(len(families), 2, replace=False)
        paraphrases = rng.integers(4, size=2)
        groups.append(
            [
                fact.changed(family=families[family]).sentence(int(paraphrase))
                for family, paraphrase in zip(chosen, paraphrases, strict=True)
            ]
        )
    return groups


def _likeness(corpus: Corpus, claim: str, sentence: str) -> float:
    """Likeness of what the same number counts in both; NaN where there is nothing to compare."""
    if "TF-IDF" in corpus.encoder:
        return float("nan")
    found = [
        corpus.likeness(wanted.counted, given.counted)
        for wanted in corpus.frame(claim).quantities
        for given in corpus.frame(sentence).quantities
        if wanted.counted and given.counted and wanted.value == given.value
    ]
    return min(found, default=float("nan"))


def main() -> None:
    """Fit both encoders and write the numbers beside this file."""
    found: dict[str, Fitted] = {}
    for encoder in ("minilm", "tf-idf"):
        table, name = pairs(range(PROCESSES), encoder=encoder)
        numbers = fit(table, products=FactWorld("fit").products, knows_meanings=encoder == "minilm")
        found[name] = numbers
        print(f"{name}: {len(table)} pairs, {table['supports'].to_numpy().sum()} of them supporting; {numbers}")
    Path(__file__).with_name("fitted.json").write_text(to_json(found), encoding="utf-8")


if __name__ == "__main__":
    main()
