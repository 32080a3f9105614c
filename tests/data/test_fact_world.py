"""The fact world: halves that share nothing, templates that hold what they promise, numbers as news writes them."""

import re

import pytest

from gnomon.data.fact_families import FAMILIES
from gnomon.data.fact_world import STYLES, FactWorld, number_in_words


def test_the_halves_share_no_family_and_no_name():
    fit, evaluation = FactWorld("fit"), FactWorld("evaluation")
    for pool in ("families", "cities", "organisations", "people", "products"):
        assert not set(getattr(fit, pool)) & set(getattr(evaluation, pool))
    assert len(fit.families) == len(evaluation.families) == 10


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_has_paraphrases_denials_and_searches(family):
    assert len(set(family.affirmed)) >= 4
    assert len(set(family.denied)) >= 2
    assert len(set(family.searches)) == 4
    for template in (*family.affirmed, *family.denied):
        assert "{org}" in template
        assert "{city}" in template
        assert "{other}" in template or not family.relational
        assert "{date}" in template or "{year}" in template
    used = set(re.findall(r"{(\w+)}", " ".join(family.affirmed)))
    assert used == set(re.findall(r"{(\w+)}", family.affirmed[0]))  # paraphrases say the same
    assert not any("{" in search for search in family.searches)


def test_facts_are_distinct_reproducible_and_balanced_over_families():
    facts = FactWorld("evaluation", seed=3).facts(200)
    assert facts == FactWorld("evaluation", seed=3).facts(200)
    assert facts != FactWorld("evaluation", seed=4).facts(200)
    assert len({(f.family.name, f.organisation, f.city, f.year) for f in facts}) == 200
    assert {sum(f.family.name == family.name for f in facts) for family in FactWorld("evaluation").families} == {20}
    assert all(fact.organisation != fact.other for fact in facts)


def test_a_fact_is_written_in_several_ways_and_can_be_corrupted():
    fact = FactWorld("fit", seed=1).facts(3)[2]
    sentences = {fact.sentence(index) for index in range(4)}
    assert len(sentences) == 4
    assert all(fact.city in sentence and str(fact.year) in sentence for sentence in sentences)
    assert fact.changed(city="Nowhere").sentence() == fact.sentence().replace(fact.city, "Nowhere")
    assert fact.sentence(negated=True) not in sentences
    assert fact.decade == f"{str(fact.year)[:3]}0s"


def test_money_is_written_as_money_in_every_style():
    fact = next(f for f in FactWorld("fit").facts(20) if f.family.name == "lawsuit").changed(amount=1_500_000)
    written = [fact.sentence(style=style) for style in STYLES]
    assert "$1,500,000" in written[0]
    assert "$1.5 million" in written[1]
    assert "one and a half million dollars" in written[2]


@pytest.mark.parametrize(
    ("value", "scaled", "words"),
    [
        (1_500_000, "1.5 million", "one and a half million"),
        (1_200, "1.2 thousand", "twelve hundred"),
        (850, "850", "850"),
        (3_000, "3 thousand", "three thousand"),
        (1_234, "1,234", "1,234"),
        (25_000_000, "25 million", "25,000,000"),
    ],
)
def test_numbers(value, scaled, words):
    assert number_in_words(value) == f"{value:,}"
    assert number_in_words(value, "scaled") == scaled
    assert number_in_words(value, "words") == words


def test_there_are_two_halves():
    with pytest.raises(ValueError, match="half must be 'fit' or 'evaluation', got 'test'"):
        FactWorld("test")  # pyright: ignore
