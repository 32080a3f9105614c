"""Checks without the graph: each reads what it says it reads, and a perfect judge shows what it can and cannot see."""

import pytest

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail import Claim, Node, OracleJudge, Process, SentenceIndex, verify
from gnomon.retrieval.veritrail.baselines import (
    direct,
    every_node,
    flat_pool,
    max_cosine,
    retrieval,
    stagewise,
    terminal_only,
)
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.judge import Selection

TRUE = Claim("true", "Corvus closed its plant in Kiel.")
INVENTED = Claim("invented", "Marlowe bought the plant.")
SKIPPED = Claim("skipped", "Trains ran late.")
CLAIMS = [TRUE, INVENTED, SKIPPED]


@pytest.fixture
def index():
    return SentenceIndex(
        Process(
            [
                Node("report", f"{TRUE.text} {SKIPPED.text} The town was quiet."),
                Node("letter", "The weather was mild."),
                Node("summary", f"{TRUE.text} {INVENTED.text}"),
                Node("answer", f"{TRUE.text} {INVENTED.text} {SKIPPED.text}"),
                Node("stray", "Nobody used this."),
            ],
            [("report", "summary"), ("letter", "summary"), ("summary", "answer"), ("report", "stray")],
            terminal="answer",
        )
    )


class Reading(OracleJudge):
    """A perfect judge that notes what each claim was compared with."""

    def __init__(self):
        super().__init__(
            {
                "true": {"report#0", "summary#0"},
                "invented": {"summary#1"},
                "skipped": {"report#1"},
                # Every sentence of the summary as a claim of its own.
                "sentence summary#0": {"report#0"},
            }
        )
        self.read = {}

    def select(self, tasks):
        for task in tasks:
            self.read.setdefault(task.claim.id, []).append([sentence.id for sentence in task.sentences])
        return super().select(tasks)


ROOTS = ["letter#0", "report#0", "report#1", "report#2"]


def verdicts(trails):
    return [trail.verdict for trail in trails]


def test_direct_reads_the_sources_and_cannot_tell_where_a_claim_entered(index):
    judge = Reading()
    trails = direct(index, CLAIMS, judge)
    assert verdicts(trails) == ["supported", "unsupported", "supported"]
    assert judge.read == {claim.id: [ROOTS] for claim in CLAIMS}
    assert all(trail.origin is None and trail.provenance is None for trail in trails)


def test_terminal_only_takes_an_invention_of_an_earlier_step_for_the_truth(index):
    trails = terminal_only(index, CLAIMS, Reading())
    assert verdicts(trails) == ["supported", "supported", "unsupported"]


def test_a_flat_pool_reads_everything_that_went_in_and_takes_inventions_for_evidence(index):
    judge = Reading()
    assert verdicts(flat_pool(index, CLAIMS, judge)) == ["supported", "supported", "supported"]
    assert judge.read["true"] == [[*ROOTS, "summary#0", "summary#1"]]


def test_stagewise_finds_verdict_and_stage_by_reading_every_stage(index):
    judge = Reading()
    trails = stagewise(index, CLAIMS, judge)
    assert verdicts(trails) == ["supported", "unsupported", "supported"]
    assert (trails[1].origin.stages, trails[1].origin.nodes) == ({2}, ("summary",))
    assert judge.read["invented"] == [["summary#0", "summary#1"], ROOTS]


def test_every_node_checks_every_sentence_against_the_sources(index):
    judge = Reading()
    trails = every_node(index, CLAIMS, judge)
    assert verdicts(trails) == ["supported", "unsupported", "supported"]
    assert trails[1].origin.nodes == ("summary",)
    # The one unsupported sentence of the summary is where the unsupported claim is looked for.
    assert judge.read["invented"] == [ROOTS, ["summary#1"]]
    assert judge.read["sentence summary#1"] == [ROOTS]
    assert len(judge.read["true"]) == 1


def test_a_claim_no_step_says_is_the_final_texts_own(index):
    nowhere = Claim("nowhere", "Nobody was hurt.")
    for check in (stagewise, every_node):
        (trail,) = check(index, [nowhere], Reading())
        assert (trail.verdict, trail.origin.nodes) == ("unsupported", ("answer",))


def test_with_one_generative_step_an_unsupported_claim_is_the_final_texts_own():
    process = Process([Node("a", "Trains ran late."), Node("t", "Nobody was hurt.")], [("a", "t")])
    for check in (stagewise, every_node):
        (trail,) = check(SentenceIndex(process), [Claim("c", "Nobody was hurt.")], OracleJudge({}))
        assert trail.origin.nodes == ("t",)


def test_every_check_agrees_with_the_walk_about_the_stage_on_generated_processes():
    process, truth = make_process(2, chunks=8, claims=10, p_error=0.6)
    index = SentenceIndex(process)
    support = {each.claim.id: each.supporting for each in truth.claims}
    said = {name: statement.core for name, statement in truth.statements.items()}
    for name, core in said.items():
        support[f"sentence {name}"] = {
            other for other in said if said[other] == core and process.is_root(index[other].node)
        }
    judge = OracleJudge(support)
    walked = verify(process, judge=judge, claims=truth.texts, q=None, index=index).claims
    for check in (stagewise, every_node):
        for ours, theirs in zip(walked, check(index, truth.texts, judge), strict=True):
            assert (ours.verdict, ours.origin and ours.origin.stages) == (
                theirs.verdict,
                theirs.origin and theirs.origin.stages,
            )


class Scoring(OracleJudge):
    """Selects everything, the later the better, and supports only what rests on the last sentence alone."""

    def select(self, tasks):
        return [
            Selection(tuple(s.id for s in task.sentences), scores=tuple(map(float, range(len(task.sentences)))))
            for task in tasks
        ]


def test_the_k_best_sentences_are_ruled_on(index):
    (trail,) = direct(index, [TRUE], Scoring({}), k=2)
    assert [sentence.id for entry in trail.iterations[0].evidence for sentence in entry.sentences] == ROOTS[-2:]


def test_retrieval_rules_on_the_nearest_sentences(index):
    (trail,) = retrieval(index, [TRUE], Reading(), k=1, encoder="tf-idf")
    assert trail.verdict == "supported"
    assert [entry.node for entry in trail.iterations[0].evidence] == ["report"]
    assert trail.usage.sentences == 4


def test_the_largest_cosine_alone_is_a_score(index):
    same, other = max_cosine(index, [TRUE, INVENTED], threshold=0.9, encoder="tf-idf")
    assert (same.verdict, same.score) == ("supported", pytest.approx(1.0, abs=1e-5))
    assert other.verdict == "unsupported"
    assert other.score < 0.9


def test_a_judge_that_does_not_answer_gives_a_status(index):
    class Silent(Reading):
        def select(self, tasks):
            return [
                Missing("gone") if task.claim.id == "invented" else answer
                for task, answer in zip(tasks, super().select(tasks), strict=True)
            ]

    for check in (direct, stagewise, every_node):
        trails = check(index, CLAIMS, Silent())
        assert [trail.status for trail in trails] == ["verified", "error", "verified"]
        assert trails[1].problem == "gone"
