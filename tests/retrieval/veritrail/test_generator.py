"""Generated processes: what is planted is what the truth says, in texts that split into the sentences it counts."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.data.fact_world import FactWorld
from gnomon.retrieval.veritrail.generator import FINAL, make_process
from gnomon.retrieval.veritrail.sentences import SentenceIndex
from gnomon.retrieval.veritrail.statements import KINDS, Statement, allows, falsified, slots

SHAPES = [{}, {"depth": 6, "fan": 2, "max_skip": 3}, {"topology": "graphrag", "fan": 2}, {"topology": "rag"}]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_text_of_every_node_splits_into_the_sentences_the_truth_counts(shape):
    process, truth = make_process(5, kinds=KINDS, p_conflict=0.1, chunks=8, **shape)
    index = SentenceIndex(process)
    told = {sentence.id for sentence in index}
    filler = {sentence for sentence in told - set(truth.statements) if process.is_root(index[sentence].node)}
    assert told == set(truth.statements) | filler
    assert len(filler) == 8
    for known in truth.claims:
        assert index[known.claim.sentence].text == known.claim.text
        assert index[known.claim.sentence].span == known.claim.span


@pytest.mark.parametrize("shape", SHAPES)
def test_a_claim_is_stated_where_its_route_and_fate_say_and_nowhere_else(shape):
    process, truth = make_process(11, kinds=KINDS, p_error=0.5, p_conflict=0.1, chunks=8, claims=24, **shape)
    for known in truth.claims:
        stages = [process.stage(node) for node in known.route]
        assert stages == list(range(1, process.last_stage + 1))
        assert all(edge in process.edges for edge in zip(known.route, known.route[1:], strict=False))
        expected = {
            node
            for node, stage in zip(known.route, stages, strict=True)
            if stage not in known.skipped and stage >= (known.stage or 1)
        }
        assert set(known.carriers) == expected | {FINAL}
        assert {sentence.rpartition("#")[0] for sentence in known.supporting} == expected - {FINAL}
        assert (known.label == "supported") == (known.kind in ("faithful", "skip"))
        assert bool(known.contradicting) == (known.kind == "conflict")
        assert bool(known.root) == (known.kind != "fab")


def test_shares_and_kinds_are_dealt_as_asked():
    _, truth = make_process(2, claims=20, p_error=0.6, p_skip=0.2)
    kinds = [known.kind for known in truth.claims]
    assert kinds.count("skip") == 4
    assert kinds.count("faithful") == 4
    assert {kind: kinds.count(kind) for kind in ("num", "date", "ent", "neg", "role", "fab")} == dict.fromkeys(
        ("num", "date", "ent", "neg", "role", "fab"), 2
    )


def test_equal_seeds_give_equal_processes_and_halves_share_no_sentence():
    first, truth = make_process(7, chunks=4, claims=6)
    again, _ = make_process(7, chunks=4, claims=6)
    other, others = make_process(7, chunks=4, claims=6, half="fit")
    assert first.digest() == again.digest()
    told, elsewhere = (
        {SentenceIndex(p)[name].text for name in t.statements} for p, t in ((first, truth), (other, others))
    )
    assert not told & elsewhere


def test_near_duplicates_differ_in_two_slots_and_imply_no_claim():
    _, few = make_process(3, near_duplicates=0)
    process, many = make_process(3, near_duplicates=10)
    assert len(many.statements) > len(few.statements) + 100
    for known in many.claims:
        for sentence, said in many.statements.items():
            if said.implies(many.statements[known.claim.sentence]) and not sentence.startswith(FINAL):
                assert sentence in known.supporting
    assert process.last_stage == 4


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"depth": 1}, "depth must be at least 2, got 1"),
        ({"claims": 200}, "16 chunks of 6 facts hold 1 to 96 claims, got claims=200"),
        ({"p_error": 0.9, "p_skip": 0.3}, r"must lie in \[0, 1\], got 1.2"),
        ({"chunks": 2, "facts": 2, "claims": 4, "kinds": ("role",), "p_error": 1.0, "p_skip": 0.0}, "take more chunks"),
    ],
)
def test_impossible_sizes_are_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_process(0, **sizes)


@given(st.integers(0, 500), st.sampled_from(KINDS))
@settings(deadline=None, max_examples=60)
def test_what_is_falsified_is_not_implied_by_what_is_true(seed, kind):
    import numpy as np

    world = FactWorld("evaluation", seed=seed)
    facts = world.facts(12)
    fact = next(fact for fact in facts if allows(fact, kind))
    true, false = falsified(
        fact, kind, world, np.random.default_rng(seed), elsewhere=facts[-1] if fact != facts[-1] else facts[0]
    )
    if true is None:
        assert kind == "fab"
        return
    assert true.implies(true)
    assert not true.implies(false)
    assert true.written(np.random.default_rng(seed)) != false.written(np.random.default_rng(seed))
    weakened = dataclasses.replace(false, hedge="", detail="")
    assert weakened.implies(weakened)
    assert set(slots(fact.family)) <= {
        "amount",
        "city",
        "day",
        "month",
        "organisation",
        "other",
        "person",
        "product",
        "year",
    }


def test_a_hedged_statement_is_weaker_and_a_detail_stronger():
    fact = FactWorld("fit", seed=1).facts(1)[0]
    plain, rumour = Statement(fact), Statement(fact, hedge="reported")
    detailed = Statement(fact, detail="after months of secret talks")
    assert plain.implies(rumour)
    assert not rumour.implies(plain)
    assert detailed.implies(plain)
    assert not plain.implies(detailed)


@pytest.mark.parametrize("seed", range(40))
def test_an_invented_event_finds_its_way_through_every_topology(seed):
    shape = {"topology": "graphrag", "chunks": 2, "claims": 6}
    process, truth = make_process(seed, kinds=("fab",), p_error=1.0, p_skip=0.0, **shape)
    assert all(claim.route[0] in process.roots and claim.route[-1] == process.terminal for claim in truth.claims)
