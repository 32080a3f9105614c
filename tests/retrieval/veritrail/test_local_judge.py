"""The local judge: words are scored, not written; and an untested model is not taken for a judge."""

import math

import pytest

from gnomon.models.chat import Missing, ScriptedChat
from gnomon.retrieval.veritrail import Claim, LocalJudge, Node, Process, SentenceIndex, verify
from gnomon.retrieval.veritrail.check import judge_check
from gnomon.retrieval.veritrail.judges.judge import NodeEvidence, RulingTask, SelectionTask, Usage

CLAIM = Claim("c", "Corvus closed its plant in Kiel.")


def process():
    return Process(
        [
            Node("report", "Corvus closed its plant in Kiel. The town was quiet. Trains ran late."),
            Node("answer", "Corvus closed its plant in Kiel."),
        ],
        [("report", "answer")],
    )


def literal(conversation, choices):
    """A model that says yes to a sentence that repeats the claim, and takes it for support."""
    lines = conversation[0]["content"].splitlines()
    claim = next(line.removeprefix("Claim: ") for line in lines if line.startswith("Claim: "))
    said = [line.removeprefix("Sentence: ") for line in lines if not line.startswith("Claim: ")]
    sure = {"yes": 0.9, "supported": 0.8} if claim in said else {"no": 0.9, "unsupported": 0.8}
    return {choice: math.log(sure.get(choice, 0.1)) for choice in choices}


def judge(**options):
    return LocalJudge(ScriptedChat("literal", score=literal), encoder="tf-idf", **options)


def test_a_claim_is_followed_with_scored_words_alone():
    (trail,) = verify(process(), judge=judge(), claims=[CLAIM]).claims
    assert trail.verdict == "supported"
    assert trail.score == pytest.approx(0.8 / (0.8 + 0.1 + 0.1))
    assert [sentence.id for sentence in trail.iterations[0].evidence[0].sentences] == ["report#0"]


def test_only_the_nearest_sentences_are_asked_about():
    index = SentenceIndex(process())
    one = judge(nearest=1)
    one.prepare(index, [CLAIM])
    (selection,) = one.select([SelectionTask(CLAIM, index.of("report"))])
    assert (selection.ids, selection.usage) == (("report#0",), Usage(calls=1))
    assert selection.scores == (pytest.approx(0.9),)


def test_a_model_that_cannot_score_gives_no_verdict():
    mute = LocalJudge(ScriptedChat("mute", reply=lambda _: "yes"), encoder="tf-idf")
    (trail,) = verify(process(), judge=mute, claims=[CLAIM]).claims
    assert (trail.status, trail.verdict) == ("error", None)
    (ruling,) = mute.rule([RulingTask(CLAIM, (NodeEvidence("report", SentenceIndex(process()).of("report")),))])
    assert isinstance(ruling, Missing)


def test_a_trail_without_a_passed_check_says_so():
    assert verify(process(), judge=judge(), claims=[CLAIM]).check == {"valid": False}
    checked = {"valid": True, "auroc": 0.9}
    assert verify(process(), judge=judge(), claims=[CLAIM], check=checked).check == checked


def test_less_than_one_sentence_is_refused():
    with pytest.raises(ValueError, match="nearest must be at least 1, got 0"):
        judge(nearest=0)


def test_a_model_that_always_says_the_same_fails_the_judge_check():
    def same(conversation, choices):
        return {choice: -float(place) for place, choice in enumerate(choices)}

    check = judge_check(LocalJudge(ScriptedChat("same", score=same), encoder="tf-idf"), pairs=20)
    assert (check.auroc.value, check.accuracy) == (0.5, 0.5)
    assert not check.valid


@pytest.mark.model
def test_the_smallest_language_model_answers_as_a_judge():
    from gnomon.models.load import load
    from gnomon.models.local_chat import LocalChat

    smollm = LocalJudge(LocalChat(load("smollm2", attn="sdpa")), nearest=2)
    trail = verify(process(), judge=smollm, claims=[CLAIM])
    assert trail.claims[0].status == "verified"
    assert 0 <= trail.claims[0].score <= 1
    assert trail.claims[0].usage.calls in (2, 3)  # two sentences are asked about, and a verdict if one is evidence
    assert trail.judge["model"] == "smollm2"
    assert trail.check == {"valid": False}
