"""The walk against hand-drawn processes, whose verdicts, paths and origins are known, and against closed forms."""

import random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.models.chat import Missing, OutOfBudget
from gnomon.retrieval.veritrail import Claim, Node, NoisyJudge, OracleJudge, Process, SentenceIndex, verify
from gnomon.retrieval.veritrail.judges.judge import Ruling, Selection
from gnomon.retrieval.veritrail.judges.oracle import support_probability

CLAIM = Claim("c", "Corvus closed its plant.")


def drawn(*paths, stages=None):
    """A process from paths "a b c"; every node says one sentence."""
    edges = [pair for path in paths for pair in zip(path.split(), path.split()[1:], strict=False)]
    names = dict.fromkeys(node for path in paths for node in path.split())
    stages = stages or {}
    return Process([Node(name, f"This is what {name} says.", stages.get(name)) for name in names], edges)


def stated(*nodes):
    """A judge for whom these nodes state the claim."""
    return OracleJudge({"c": {f"{node}#0" for node in nodes}})


def walk(process, judge, **options):
    (trail,) = verify(process, judge=judge, claims=[CLAIM], **options).claims
    return trail


def searched(trail):
    return [step.candidates for step in trail.iterations]


class Reading(OracleJudge):
    """An oracle that writes down which sentences it was shown and which verdicts it was asked for."""

    def __init__(self, support):
        super().__init__({"c": support})
        self.shown, self.ruled, self.asked = set(), [], []

    def select(self, tasks):
        self.shown |= {sentence.id for task in tasks for sentence in task.sentences}
        self.asked += [len(tasks)]
        return super().select(tasks)

    def rule(self, tasks):
        self.ruled += [tuple(entry.node for entry in task.evidence) for task in tasks]
        return super().rule(tasks)


def test_a_true_claim_is_followed_to_its_source():
    trail = walk(drawn("a b c t"), stated("a", "b", "c"))
    assert (trail.verdict, trail.stop, trail.score) == ("supported", "roots", 1.0)
    assert searched(trail) == [("c",), ("b",), ("a",)]
    assert trail.provenance.paths == (("a", "b", "c", "t"),)
    assert trail.provenance.complete
    assert trail.origin is None


@pytest.mark.parametrize(
    ("nodes", "q", "stages", "origin", "stop"),
    [
        (("b", "c"), 3, {2}, ("b",), "no-candidates"),  # b invented it
        (("c",), 3, {3}, ("c",), "no-candidates"),
        (("c",), 1, {3}, ("c",), "q"),
        ((), None, {4}, ("t",), "no-candidates"),  # the final text itself
        ((), 1, {4}, ("t",), "q"),
    ],
)
def test_an_invented_claim_is_traced_to_the_step_that_invented_it(nodes, q, stages, origin, stop):
    trail = walk(drawn("a b c t"), stated(*nodes), q=q)
    assert (trail.verdict, trail.stop) == ("unsupported", stop)
    assert trail.origin.stages == stages
    assert trail.origin.nodes == origin
    assert not trail.origin.undetermined
    assert trail.provenance is None


@pytest.mark.parametrize("left_out", [1, 2, 3])
@pytest.mark.parametrize("q", [1, 2, 3, 4, None])
def test_a_true_claim_that_steps_in_a_row_left_out_is_found_iff_q_is_larger(left_out, q):
    nodes = ["r", "n1", "n2", "n3", "n4"]
    kept = [node for node in nodes if node not in nodes[1 : 1 + left_out]]
    trail = walk(drawn(" ".join([*nodes, "t"])), stated(*kept), q=q)
    assert trail.verdict == ("supported" if q is None or q > left_out else "unsupported")
    if trail.verdict == "supported":
        assert not trail.provenance.complete
        assert trail.provenance.skipped_stages == tuple(range(2, 2 + left_out))


def test_both_arms_of_a_diamond_are_in_the_provenance():
    trail = walk(drawn("a b t", "a c t"), stated("a", "b", "c"))
    assert set(trail.provenance.paths) == {("a", "b", "t"), ("a", "c", "t")}
    assert searched(trail) == [("b", "c"), ("a",)]


def test_only_the_arm_that_supports_the_claim_is_followed():
    judge = Reading({"a#0", "b#0"})
    trail = walk(drawn("a b t", "x c t"), judge)
    assert trail.provenance.paths == (("a", "b", "t"),)
    assert "x#0" not in judge.shown


def test_a_source_read_at_two_depths_is_carried_to_the_end():
    trail = walk(drawn("a b c t", "a t"), stated("a", "b", "c"))
    assert searched(trail) == [("a", "c"), ("a", "b"), ("a",)]
    assert trail.provenance.paths == (("a", "b", "c", "t"), ("a", "t"))


def test_a_source_searched_before_without_evidence_does_not_end_the_walk_in_support():
    trail = walk(drawn("a b c t", "a t"), stated("b", "c"))
    assert (trail.verdict, trail.origin.nodes) == ("unsupported", ("b",))


def test_a_source_read_only_by_the_final_text_supports_at_once():
    trail = walk(drawn("a b t", "x t"), stated("x"))
    assert (trail.verdict, trail.stop, len(trail.iterations)) == ("supported", "roots", 1)
    assert trail.provenance.paths == (("x", "t"),)


def test_a_source_with_evidence_is_looked_at_again_beside_what_else_is_searched():
    trail = walk(drawn("a b t", "x t"), stated("b", "x"))
    assert searched(trail) == [("x", "b"), ("a", "x")]
    assert (trail.verdict, trail.provenance.paths) == ("supported", (("x", "t"),))


def test_a_shared_node_is_searched_once_a_step():
    judge = Reading({"a#0", "m#0", "b#0", "c#0"})
    trail = walk(drawn("a m b t", "m c t"), judge)
    assert searched(trail) == [("b", "c"), ("m",), ("a",)]
    assert set(trail.provenance.paths) == {("a", "m", "b", "t"), ("a", "m", "c", "t")}


def test_what_the_final_text_was_not_made_from_is_never_read():
    nodes = [Node(name, f"This is {name}.") for name in ("a", "b", "t", "stray")]
    process = Process(nodes, [("a", "b"), ("b", "t"), ("a", "stray")], terminal="t")
    judge = Reading({"a#0", "b#0", "stray#0"})
    walk(process, judge, q=None)
    assert judge.shown == {"a#0", "b#0"}


def test_support_lost_and_found_again_dates_from_the_last_support():
    trail = walk(drawn("r n1 n2 n3 t"), stated("n3", "n1"))
    assert [step.verdict for step in trail.iterations] == ["supported", "unsupported", "supported", "unsupported"]
    assert trail.origin.nodes == ("n1",)


def test_nodes_of_several_stages_that_say_it_are_all_returned():
    trail = walk(drawn("a b c t", "b t"), OracleJudge({"c": {"b#0", "c#0"}}))
    assert trail.origin.nodes == ("b",)
    trail = walk(drawn("a b t", "x y z t"), stated("b", "z"))
    assert (trail.origin.stages, trail.origin.nodes) == ({2, 3}, ("b", "z"))


def test_a_step_within_one_stage_is_told_by_its_node():
    trail = walk(drawn("a draft revised t", stages={"draft": 2, "revised": 2, "t": 3}), stated("revised"))
    assert (trail.origin.stages, trail.origin.nodes) == ({2}, ("revised",))


def test_sources_that_disagree_are_inconclusive_with_their_path():
    process = drawn("a b t", "x b")
    judge = OracleJudge({"c": {"a#0", "b#0"}}, against={"c": {"x#0"}})
    trail = walk(process, judge)
    assert (trail.verdict, trail.stop) == ("inconclusive", "roots")
    assert set(trail.provenance.paths) == {("a", "b", "t"), ("x", "b", "t")}


def test_an_unclear_step_without_any_support_leaves_the_origin_undetermined():
    process = drawn("a b t", "x c t")
    judge = OracleJudge({"c": {"b#0"}}, against={"c": {"c#0"}})
    trail = walk(process, judge)
    assert (trail.verdict, trail.origin.undetermined) == ("unsupported", True)
    assert trail.origin.stages == {2, 3}


def test_one_generative_step_is_the_direct_check():
    process = drawn("a t", "b t", "x t")
    judge = Reading({"b#0"})
    trail = walk(process, judge)
    assert searched(trail) == [("a", "b", "x")]
    assert judge.ruled == [("b",)]
    assert trail.verdict == "supported"


def test_without_evidence_no_verdict_is_asked_for():
    judge = Reading(set())
    trail = walk(drawn("a b c t"), judge, q=None)
    assert judge.ruled == []
    assert [step.verdict for step in trail.iterations] == ["unsupported"] * 3


def test_claims_walk_together_one_batch_a_step():
    judge = Reading({"a#0", "b#0", "c#0"})
    claims = [CLAIM, Claim("d", "Something else.")]
    verify(drawn("a b c t"), judge=judge, claims=claims, q=2)
    assert judge.asked == [2, 2, 1]


def test_a_supported_verdict_narrows_the_walk_to_the_nodes_it_cites():
    class Citing(OracleJudge):
        def select(self, tasks):
            return [Selection(tuple(sentence.id for sentence in task.sentences)) for task in tasks]

    judge = Citing({"c": {"a#0", "b#0"}})
    trail = walk(drawn("a b t", "x c t"), judge)
    assert searched(trail) == [("b", "c"), ("a",)]


def test_ids_that_were_not_shown_are_discarded_and_counted():
    class Inventive(OracleJudge):
        def select(self, tasks):
            return [Selection(("c#0", "c#0", "a#0", "nowhere#7")) for _ in tasks]

        def rule(self, tasks):
            return [Ruling("supported", 1.0, cited=("c#0", "t#0")) for _ in tasks]

    trail = walk(drawn("a b c t"), Inventive({}), q=1)
    first = trail.iterations[0]
    assert [entry.node for entry in first.evidence] == ["c"]
    assert first.cited == ("c#0",)
    assert first.hallucinated == 3  # a#0 and nowhere#7 when selecting, t#0 when ruling


@st.composite
def processes(draw):
    """Layered processes with edges over any distance, and who states the claim."""
    layers = [[f"n{layer}_{i}" for i in range(draw(st.integers(1, 3)))] for layer in range(draw(st.integers(2, 4)))]
    edges = []
    for depth, layer in enumerate(layers[1:], start=1):
        below = [node for lower in layers[:depth] for node in lower]
        for node in layer:
            edges += [(u, node) for u in draw(st.lists(st.sampled_from(below), min_size=1, max_size=4, unique=True))]
    names = [node for layer in layers for node in layer]
    ends = [node for node in names if all(u != node for u, _ in edges)]
    edges += [(node, "t") for node in ends]
    stating = draw(st.sets(st.sampled_from(names)))
    return [*names, "t"], edges, stating


@settings(max_examples=60, deadline=None)
@given(processes(), st.sampled_from([1, 2, 3, None]))
def test_every_walk_ends_within_the_longest_path(drawn_process, q):
    names, edges, stating = drawn_process
    process = Process([Node(name, f"{name} speaks.") for name in names], edges)
    trail = walk(process, stated(*stating), q=q)
    longest = nx.dag_longest_path_length(process.graph().subgraph(process.ancestors("t") | {"t"}))
    assert len(trail.iterations) <= longest
    assert trail.status == "verified"
    if trail.stop == "no-candidates":
        assert trail.verdict == "unsupported"


@settings(max_examples=40, deadline=None)
@given(processes(), st.sampled_from([1, 2, None]), st.randoms(use_true_random=False))
def test_names_and_order_of_the_nodes_change_nothing(drawn_process, q, shuffling: random.Random):
    names, edges, stating = drawn_process
    new = dict(zip(names, shuffling.sample([f"z{i}" for i in range(len(names))], len(names)), strict=True))
    one = walk(Process([Node(name, f"{name} speaks.") for name in names], edges), stated(*stating), q=q)
    listed = shuffling.sample(names, len(names))
    renamed = Process(
        [Node(new[name], f"{name} speaks.") for name in listed],
        shuffling.sample([(new[u], new[v]) for u, v in edges], len(edges)),
    )
    other = walk(renamed, stated(*(new[node] for node in stating)), q=q)
    assert (other.verdict, other.stop) == (one.verdict, one.stop)
    assert [{new[node] for node in step} for step in searched(one)] == [set(step) for step in searched(other)]
    if one.origin is not None:
        assert {new[node] for node in one.origin.nodes} == set(other.origin.nodes)
    else:
        assert {tuple(new[node] for node in path) for path in one.provenance.paths} == set(other.provenance.paths)


RATES = {"false_unsupported": 0.1, "false_supported": 0.05}
PUBLISHED = [
    ("111", 1, 0.729),
    ("111", 2, 0.891),
    ("111", 3, 0.900),
    ("11111", 1, 0.5905),
    ("11111", 2, 0.8748),
    ("11111", 3, 0.8983),
    ("11111", 5, 0.9000),
    ("100", 1, 0.00225),
    ("100", 2, 0.04525),
    ("100", 3, 0.05),
    ("011", 1, 0.0405),
    ("011", 2, 0.8145),
    ("011", 3, 0.900),
    ("001", 2, 0.0878),
    ("11100", 1, 0.0018),
    ("11100", 2, 0.0448),
    ("11100", 3, 0.0495),
    ("11100", None, 0.05),
]


@pytest.mark.parametrize(("pattern", "q", "probability"), PUBLISHED)
def test_the_chain_gives_the_known_probabilities(pattern, q, probability):
    states = [digit == "1" for digit in pattern]
    # half a unit of the last digit that was written down
    assert support_probability(states, q, **RATES) == pytest.approx(probability, abs=6e-5)


@pytest.mark.parametrize("pattern", ["111", "011", "11100"])
@pytest.mark.parametrize("q", [1, 2, None])
def test_noisy_walks_end_in_support_as_often_as_the_chain_says(pattern, q):
    names = [f"n{depth}" for depth in range(len(pattern))]  # n0 is what the final text was made from
    process = drawn(" ".join([*reversed(names), "t"]))
    claims = [Claim(str(number), "It is so.") for number in range(1_000)]
    stating = {f"{name}#0" for name, digit in zip(names, pattern, strict=True) if digit == "1"}
    judge = NoisyJudge({claim.id: stating for claim in claims}, **RATES, seed=1)
    trails = verify(process, judge=judge, claims=claims, q=q).claims
    observed = sum(trail.verdict == "supported" for trail in trails) / len(trails)
    expected = support_probability([digit == "1" for digit in pattern], q, **RATES)
    error = (expected * (1 - expected) / len(trails)) ** 0.5
    assert abs(observed - expected) <= 3.5 * error  # the seed is fixed: this passes or fails for good


@pytest.mark.parametrize(
    ("failure", "status"),
    [(Missing("the server is gone"), "error"), (OutOfBudget("budget of 3 calls is spent"), "budget")],
)
@pytest.mark.parametrize("silent", ["select", "rule"])
def test_a_judge_that_does_not_answer_gives_a_status_and_no_verdict(failure, status, silent):
    class Failing(OracleJudge):
        """Answers about everything but the claim d, at the second step."""

        def _answers(self, kind, tasks, answers):
            if silent != kind:
                return answers
            return [
                failure if task.claim.id == "d" and "b#0" in self._ids(task) else answer
                for task, answer in zip(tasks, answers, strict=True)
            ]

        def _ids(self, task):
            shown = getattr(task, "sentences", None) or [s for entry in task.evidence for s in entry.sentences]
            return {sentence.id for sentence in shown}

        def select(self, tasks):
            return self._answers("select", tasks, super().select(tasks))

        def rule(self, tasks):
            return self._answers("rule", tasks, super().rule(tasks))

    ids = {"a#0", "b#0", "c#0"}
    judge = Failing({"c": ids, "d": ids})
    good, bad = verify(drawn("a b c t"), judge=judge, claims=[CLAIM, Claim("d", "Other.")]).claims
    assert (good.status, good.verdict) == ("verified", "supported")
    assert (bad.status, bad.verdict, bad.problem) == (status, None, failure.reason)
    assert len(bad.iterations) == 1


def test_claims_are_taken_from_the_final_text_or_handed_in():
    process = Process([Node("a", "One. Two."), Node("t", "First here. Second here.")], [("a", "t")])
    taken = verify(process, judge=OracleJudge({"t#0": {"a#0"}}))
    assert [(trail.claim.text, trail.verdict) for trail in taken.claims] == [
        ("First here.", "supported"),
        ("Second here.", "unsupported"),
    ]
    handed = verify(process, judge=OracleJudge({"c2": {"a#0"}}), claims=["x", "y"])
    assert [trail.verdict for trail in handed.claims] == ["unsupported", "supported"]


def test_a_text_without_claims_has_an_empty_trail():
    assert verify(drawn("a t"), judge=stated("a"), claims=[]).claims == ()


def test_progress_counts_the_claims_that_are_done():
    seen = []
    judge = OracleJudge({"c": {"a#0", "b#0", "c#0"}})
    verify(
        drawn("a b c t"), judge=judge, claims=[CLAIM, Claim("d", "Other.")], q=1, on_progress=lambda *n: seen.append(n)
    )
    assert seen == [(1, 2), (1, 2), (2, 2)]


def test_the_trail_says_what_was_verified_by_whom_and_how():
    process = drawn("a t")
    trail = verify(
        process, judge=stated("a"), claims=[CLAIM], q=None, max_input_tokens=500, index=SentenceIndex(process)
    )
    assert trail.process == process.digest()
    assert trail.judge == {"judge": "oracle"}
    assert trail.settings == {"q": None, "max_input_tokens": 500, "shuffle": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"q": 0}, "q must be at least 1, or None"), ({"max_input_tokens": 0}, "max_input_tokens must be at least 1")],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        walk(drawn("a t"), stated("a"), **options)


def test_two_claims_with_one_id_are_refused():
    with pytest.raises(ValueError, match="different ids; used twice: c"):
        verify(drawn("a t"), judge=stated("a"), claims=[CLAIM, Claim("c", "Other.")])


def test_an_empty_source_is_allowed_and_warned_about():
    process = Process([Node("a", "Yes."), Node("b", " "), Node("t", "Yes.")], [("a", "t"), ("b", "t")])
    with pytest.warns(UserWarning, match=r"source 'b' has no text \(1 of 2\)"):
        assert walk(process, stated("a")).verdict == "supported"


def test_an_empty_step_says_nothing():
    process = Process([Node("a", "Yes."), Node("b", ""), Node("t", "Yes.")], [("a", "b"), ("b", "t")])
    trail = walk(process, stated("a"))
    assert [step.verdict for step in trail.iterations] == ["unsupported", "supported"]
    assert trail.provenance.skipped_stages == (2,)
