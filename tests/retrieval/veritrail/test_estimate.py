"""The estimate is an upper bound, and exact where a walk does all it may do."""

import pytest

from gnomon.retrieval.veritrail import Claim, Node, OracleJudge, Process, SentenceIndex, estimate, verify
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.judge import Ruling, Selection, Usage


class Metered(OracleJudge):
    """An oracle that reports one call a question; ``widest``: everything is evidence and nothing supports."""

    def __init__(self, support, *, widest=False):
        super().__init__(support)
        self.widest = widest

    def select(self, tasks):
        if self.widest:
            return [Selection(tuple(s.id for s in task.sentences), usage=Usage(calls=1)) for task in tasks]
        return [Selection(found.ids, usage=Usage(calls=1)) for found in super().select(tasks)]

    def rule(self, tasks):
        if self.widest:
            return [Ruling("unsupported", 0.0, usage=Usage(calls=1)) for _ in tasks]
        return [Ruling(r.verdict, r.score, cited=r.cited, usage=Usage(calls=1)) for r in super().rule(tasks)]


def spent(trail):
    return sum((claim.usage for claim in trail.claims), Usage())


def test_a_walk_that_finds_evidence_everywhere_and_support_nowhere_costs_the_estimate():
    process, truth = make_process(0, chunks=8, claims=4)
    trail = verify(process, judge=Metered({}, widest=True), claims=truth.texts, q=None, max_input_tokens=None)
    bound = estimate(process, 4, max_input_tokens=None)
    assert (spent(trail).calls, spent(trail).sentences) == (bound.calls, bound.sentences)
    assert {len(claim.iterations) for claim in trail.claims} == {bound.steps}


@pytest.mark.parametrize("limit", [None, 1_000])
@pytest.mark.parametrize("topology", ["hierarchical", "graphrag", "rag"])
def test_no_real_walk_costs_more(topology, limit):
    process, truth = make_process(1, topology=topology, chunks=8, claims=6, p_skip=0.0)
    judge = Metered({each.claim.id: each.supporting for each in truth.claims})
    cost = spent(verify(process, judge=judge, claims=truth.texts, q=None, max_input_tokens=limit))
    bound = estimate(process, 6, max_input_tokens=limit, index=SentenceIndex(process))
    assert cost.sentences <= bound.sentences
    assert cost.calls <= bound.calls


def test_one_step_of_two_sentences():
    process = Process([Node("a", "One two three. Four five six."), Node("t", "One.")], [("a", "t")])
    bound = estimate(process, 3)
    # A selection and a ruling a claim; 14 characters are 4 tokens, and 4 more mark the sentence.
    assert (bound.calls, bound.sentences, bound.tokens, bound.steps) == (6, 6, 3 * 2 * 16, 1)
    assert estimate(process, 0).calls == 0
    assert len(verify(process, judge=OracleJudge({}), claims=[Claim("c", "One.")]).claims[0].iterations) == 1
