"""The offline judge: what it selects, how it rules, and the shipped numbers."""

import os
import subprocess
import sys

import pytest

from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.judge import NodeEvidence, RulingTask, SelectionTask
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.metrics import verdict_quality
from gnomon.retrieval.veritrail.offline import fitting
from gnomon.retrieval.veritrail.offline.comparison import Mismatches
from gnomon.retrieval.veritrail.offline.support import VETOED, fitted, to_json
from gnomon.retrieval.veritrail.process import Node, Process
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.verify import verify

TEXTS = {
    "a": "Corvus Electronics fined nobody. Corvus Electronics hired 300 engineers in Kiel on 4 May 2011.",
    "b": "Corvus Electronics hired 500 engineers in Kiel on 4 May 2011. The weather was mild.",
    "c": "300 engineers were hired by Corvus Electronics. The hiring in Kiel was over on 4 May 2011.",
}
CLAIM = Claim("c1", "On 4 May 2011, 300 engineers were hired by Corvus Electronics in Kiel.")


@pytest.fixture(scope="module")
def asked():
    nodes = [*(Node(name, text) for name, text in TEXTS.items()), Node("end", CLAIM.text)]
    index = SentenceIndex(Process(nodes, [(name, "end") for name in TEXTS]))
    judge = OfflineJudge("tf-idf")
    judge.prepare(index, [CLAIM])
    return index, judge


def ruling(asked, *sentences):
    index, judge = asked
    nodes = dict.fromkeys(index[name].node for name in sentences)
    evidence = tuple(
        NodeEvidence(node, tuple(index[name] for name in sentences if index[name].node == node)) for node in nodes
    )
    return judge.rule([RulingTask(CLAIM, evidence)])[0]


def test_a_sentence_that_agrees_supports_and_is_cited(asked):
    found = ruling(asked, "a#1")
    assert (found.verdict, found.cited) == ("supported", ("a#1",))
    assert found.score > VETOED


def test_another_number_from_another_node_makes_it_inconclusive_and_alone_unsupported(asked):
    both = ruling(asked, "a#1", "b#0")
    assert (both.verdict, set(both.cited)) == ("inconclusive", {"a#1", "b#0"})
    alone = ruling(asked, "b#0")
    assert alone.verdict == "unsupported"
    assert "number differ" in alone.reasoning
    assert alone.score <= VETOED


def test_two_sentences_support_together_what_neither_does(asked):
    assert ruling(asked, "c#0").verdict == "unsupported"
    assert ruling(asked, "c#1").verdict == "unsupported"
    together = ruling(asked, "c#0", "c#1")
    assert (together.verdict, set(together.cited)) == ("supported", {"c#0", "c#1"})


def test_selection_keeps_the_most_relevant_and_counts_what_it_read(asked):
    index, judge = asked
    task = SelectionTask(CLAIM, index.of_all("abc"))
    found = judge.select([task])[0]
    assert found.ids[0] in ("a#1", "c#0")
    assert "b#1" not in found.ids
    assert list(found.scores) == sorted(found.scores, reverse=True)
    assert found.usage.sentences == 6
    assert judge.with_options(most=1).select([task])[0].ids == found.ids[:1]


def test_options_are_checked_and_questions_before_preparation_refused():
    with pytest.raises(ValueError, match="most must be at least 1"):
        OfflineJudge(most=0)
    with pytest.raises(ValueError, match="ignore takes number, date"):
        OfflineJudge(ignore=("grammar",))
    with pytest.raises(ValueError, match="select_by must be"):
        OfflineJudge(select_by="luck")
    with pytest.raises(RuntimeError, match="call prepare"):
        OfflineJudge().rule([RulingTask(CLAIM, ())])


def test_a_generated_process_of_the_evaluation_half_is_judged_well_without_sentence_vectors():
    right = called = 0.0
    for seed in range(3):
        process, truth = make_process(seed, chunks=6, facts=4, claims=12, near_duplicates=1)
        trail = verify(process, judge=OfflineJudge("tf-idf"), claims=truth.texts, q=3)
        quality = verdict_quality(
            [found.verdict == "supported" for found in trail.claims], [t.label == "supported" for t in truth.claims]
        )
        right, called = right + quality.macro_f1 / 3, called + quality.recall / 3
    assert right > 0.85
    assert called > 0.85


def test_shipped_numbers_are_what_the_fit_gives_and_touch_only_the_fit_half():
    table, name = fitting.pairs(range(2), encoder="tf-idf")
    again = fitting.fit(table, products=(), knows_meanings=False)
    shipped = fitted(name)
    # Two of 24 processes: the same signs and sizes, not the same digits.
    assert again.cosine > 0
    assert all(again.mismatches[kind] < -1 for kind in ("number", "date", "name"))
    assert again.select == pytest.approx(shipped.select, abs=0.15)
    assert '"select"' in to_json({name: again})
    with pytest.raises(KeyError, match="not for 'word2vec'"):
        fitted("word2vec")


def test_a_mismatch_caps_the_probability():
    numbers = fitted("all-MiniLM-L6-v2")
    assert numbers.probability(1.0, 1.0, Mismatches()) > 0.9
    assert numbers.probability(1.0, 1.0, Mismatches(order=1)) <= VETOED


@pytest.mark.e2e
def test_another_process_finds_the_same_trail_to_the_last_digit():
    script = """
from gnomon.retrieval.veritrail import OfflineJudge, verify
from gnomon.retrieval.veritrail.generator import make_process
process, truth = make_process(0, chunks=8, claims=10)
for claim in verify(process, judge=OfflineJudge("tf-idf"), claims=truth.texts).claims:
    print(claim.verdict, [step.score.hex() for step in claim.iterations], [step.cited for step in claim.iterations])
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(said[0].splitlines()) == 10
    assert said[0] == said[1]
