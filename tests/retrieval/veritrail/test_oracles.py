"""With a judge that knows the truth, the walk is right about every claim of every generated process."""

import pytest

from gnomon.retrieval.veritrail import LengthLimitedJudge, NoisyJudge, OracleJudge, SentenceIndex, verify
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.judge import SelectionTask

SHAPES = [
    {"depth": 3, "p_skip": 0.0},
    {"depth": 4},
    {"depth": 6, "fan": 2, "max_skip": 4},
    {"topology": "graphrag"},
    {"topology": "rag", "depth": 2, "p_skip": 0.0},
]


def knowing(truth):
    return OracleJudge(
        {each.claim.id: each.supporting for each in truth.claims},
        {each.claim.id: each.contradicting for each in truth.claims},
    )


def shorter(shape, seed):
    return make_process(seed, **{"chunks": 8, "claims": 10, "near_duplicates": 1, "p_conflict": 0.1, **shape})


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_verdicts_stages_and_sources_are_all_right(shape, seed):
    process, truth = shorter(shape, seed)
    trail = verify(process, judge=knowing(truth), claims=truth.texts, q=None)
    for found, true in zip(trail.claims, truth.claims, strict=True):
        assert found.verdict == true.label, (true.kind, true.route)
        if true.stage is not None:
            assert found.origin.stages == {true.stage}, true.kind
            assert not found.origin.undetermined
        else:
            sources = {edge[0] for edge in found.provenance.edges if process.is_root(edge[0])}
            last = {entry.node for entry in found.iterations[-1].evidence}
            assert true.root.rpartition("#")[0] in sources | last
        if true.kind == "faithful":
            assert true.route in found.provenance.paths
            assert found.provenance.complete


@pytest.mark.parametrize("q", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_omission_of_l_steps_is_forgiven_iff_q_is_larger(q, seed):
    process, truth = shorter(
        {"depth": 6, "fan": 2, "p_skip": 0.6, "p_error": 0.0, "p_conflict": 0.0, "max_skip": 4}, seed
    )
    trail = verify(process, judge=knowing(truth), claims=truth.texts, q=q)
    skips = [(found, true) for found, true in zip(trail.claims, truth.claims, strict=True) if true.kind == "skip"]
    assert len(skips) == 6
    for found, true in skips:
        assert (found.verdict == "supported") == (q > len(true.skipped)), true.skipped
        if found.verdict == "supported":
            assert found.provenance.skipped_stages == true.skipped


@pytest.mark.parametrize("limit", [500, 60])
def test_the_limit_of_a_prompt_changes_no_verdict_and_no_origin(limit):
    process, truth = shorter({"depth": 4}, 3)
    whole = verify(process, judge=knowing(truth), claims=truth.texts, max_input_tokens=None)
    cut = verify(process, judge=knowing(truth), claims=truth.texts, max_input_tokens=limit)
    # What is dropped may be one side of a conflict; whether a claim is supported at all does not change.
    for one, other, true in zip(whole.claims, cut.claims, truth.claims, strict=True):
        if true.kind != "conflict":
            assert (one.verdict, one.origin, one.stop) == (other.verdict, other.origin, other.stop)


def test_the_order_of_the_nodes_in_a_prompt_changes_what_is_read_first_and_nothing_else():
    process, truth = shorter({"depth": 4, "p_conflict": 0.0}, 3)
    orders = {}

    class Noting(OracleJudge):
        def __init__(self, name):
            super().__init__({each.claim.id: each.supporting for each in truth.claims})
            self._orders = orders.setdefault(name, [])

        def select(self, tasks):
            self._orders += [tuple(dict.fromkeys(sentence.node for sentence in task.sentences)) for task in tasks]
            return super().select(tasks)

    plain, shuffled, again, other = (
        verify(process, judge=Noting(name), claims=truth.texts, shuffle=seed)
        for name, seed in (("plain", None), ("shuffled", 1), ("again", 1), ("other", 2))
    )
    for trail in (shuffled, other):
        for ours, theirs in zip(plain.claims, trail.claims, strict=True):
            assert (ours.verdict, ours.stop, ours.origin) == (theirs.verdict, theirs.stop, theirs.origin)
            assert [step.candidates for step in ours.iterations] == [step.candidates for step in theirs.iterations]
            assert [set(step.grounds) for step in ours.iterations] == [set(step.grounds) for step in theirs.iterations]
    assert shuffled == again
    assert shuffled.settings["shuffle"] == 1
    assert orders["plain"] != orders["shuffled"] != orders["other"]
    assert list(map(sorted, orders["plain"])) == list(map(sorted, orders["shuffled"]))


def test_a_rewired_process_loses_the_paths():
    import numpy as np

    process, truth = make_process(0, chunks=16, claims=12, p_error=0.0, p_skip=0.0)
    rewired = process.rewired(np.random.default_rng(0))
    true = verify(process, judge=knowing(truth), claims=truth.texts, q=1)
    null = verify(rewired, judge=knowing(truth), claims=truth.texts, q=1)
    assert all(each.verdict == "supported" for each in true.claims)
    assert sum(each.verdict == "supported" for each in null.claims) <= 4


def test_a_noisy_judge_without_noise_is_the_oracle():
    process, truth = shorter({"depth": 4}, 0)
    support = {each.claim.id: each.supporting for each in truth.claims if each.kind != "conflict"}
    claims = [each.claim for each in truth.claims if each.kind != "conflict"]
    noiseless = NoisyJudge(support, false_unsupported=0.0, false_supported=0.0)
    ours = verify(process, judge=noiseless, claims=claims, q=2).claims
    theirs = verify(process, judge=OracleJudge(support), claims=claims, q=2).claims
    assert [each.verdict for each in ours] == [each.verdict for each in theirs]
    assert noiseless.identity == {"judge": "noisy", "false_unsupported": 0.0, "false_supported": 0.0, "seed": 0}


def test_a_length_limited_judge_reads_as_many_sentences_and_no_more():
    process, truth = shorter({"depth": 4}, 0)
    index = SentenceIndex(process)
    seen = []

    class Noting(OracleJudge):
        def select(self, tasks):
            seen.extend(len(task.sentences) for task in tasks)
            return super().select(tasks)

    judge = LengthLimitedJudge(Noting({}), 5)
    roots = index.of_all(process.roots)
    tasks = [SelectionTask(truth.texts[0], roots), SelectionTask(truth.texts[0], roots[:3])]
    judge.select(tasks)
    assert seen == [5, 3]
    assert judge.identity == {"judge": "oracle", "reads_at_most": 5, "reading_seed": 0}


def test_what_a_length_limited_judge_reads_is_a_fair_choice_that_repeats():
    process, truth = shorter({"depth": 4}, 0)
    roots = SentenceIndex(process).of_all(process.roots)[:20]
    everything = {claim.id: {s.id for s in roots} for claim in truth.texts}
    counts = dict.fromkeys((s.id for s in roots), 0)
    for seed in range(40):
        judge = LengthLimitedJudge(OracleJudge(everything), 5, seed=seed)
        tasks = [SelectionTask(claim, roots) for claim in truth.texts]
        chosen = judge.select(tasks)
        assert chosen == judge.select(tasks)
        for selection in chosen:
            for name in selection.ids:
                counts[name] += 1
    # 400 draws of 5 in 20: 100 each, standard deviation 8.7; the seeds are fixed.
    assert all(65 <= count <= 135 for count in counts.values())


def test_a_limit_below_one_sentence_is_refused():
    with pytest.raises(ValueError, match="sentences must be at least 1, got 0"):
        LengthLimitedJudge(OracleJudge({}), 0)
