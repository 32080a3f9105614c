"""What the offline judge reads in a sentence, and when two sentences agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.data.fact_world import STYLES, FactWorld, number_in_words
from gnomon.retrieval.veritrail.offline.comparison import Mismatches, compare, complete_each_other
from gnomon.retrieval.veritrail.offline.frames import Lexicon
from gnomon.retrieval.veritrail.offline.names import names
from gnomon.retrieval.veritrail.offline.numbers import Date, Quantity, dates, quantities

TOLD = [
    "Marlowe Chemicals sued Sable Telecom in Kiel on 5 March 2009, seeking $1.5 million.",
    "In 2010 Greta Holm left Marlowe Chemicals for Sable Telecom.",
    "The workers of Sable Telecom went to Kiel, and Kiel is a town.",
]
LEXICON = Lexicon(TOLD)


def differ(claim, evidence, alike=lambda first, second: True):
    comparison = compare(LEXICON.frame(claim), LEXICON.frame(evidence), alike)
    counts = dict(zip(Mismatches._fields, comparison.mismatches, strict=True))
    return {kind: count for kind, count in counts.items() if count}


@given(
    st.integers(1, 9_999).flatmap(lambda n: st.sampled_from([n, 100 * n, 1_000 * n, 500_000 * n])),
    st.sampled_from(STYLES),
)
def test_an_amount_is_read_in_every_style(value, style):
    (found,) = quantities(f"They paid {number_in_words(value, style)} dollars.")
    assert found.value == pytest.approx(value)
    assert found.unit == "$"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("half a million people came", [Quantity(500_000, "", "=", "people came")]),
        ("at least 1,200 jobs", [Quantity(1200, "", ">=", "jobs")]),
        ("up to €3.5 billion", [Quantity(3.5e9, "€", "<=")]),
        ("It rose by 3 percentage points to 12 per cent.", [Quantity(3, "points"), Quantity(12, "%")]),
        ("1\N{NO-BREAK SPACE}250 tonnes", [Quantity(1250, "", "=", "tonnes")]),
        ("one of them saw two dogs", [Quantity(2, "", "=", "dogs")]),
        ("On 5 March 2009 it had 2,009 members", [Quantity(2009, "", "=", "members")]),
        ("nobody came in 1999", []),
    ],
)
def test_numbers_with_unit_bound_and_what_they_count(text, expected):
    assert list(quantities(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("On 5 March 2009 and on March 7, 2010", [Date(2009, 3, 5), Date(2010, 3, 7)]),
        ("in May 1990, since 1999", [Date(1990, 5), Date(1999)]),
        ("2019-03-04", [Date(2019, 3, 4)]),
        ("the 3rd of June 2001", [Date(2001, 6, 3)]),
        ("They may march in May.", [Date(None, 5)]),
        ("It sold 2000 cars.", []),
    ],
)
def test_dates_in_every_order(text, expected):
    assert list(dates(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Workers at Halvorsen Steel met in Graz.", ["Halvorsen Steel", "Graz"]),
        ("On Monday Dr. Anna Keller's team won.", ["Anna Keller"]),
        ("The Rosa de Luna sailed from Porto.", ["Rosa de Luna", "Porto"]),
        ("No factory of U.S. Rail opened.", ["U.S. Rail"]),
        ("Flames swept through the depot.", []),
    ],
)
def test_names_are_capitalised_spans_that_are_not_only_first(text, expected):
    assert [" ".join(name.words) for name in names(text)] == expected


CLAIM = TOLD[0]


@pytest.mark.parametrize(
    ("evidence", "kinds"),
    [
        ("On 5 March 2009, Marlowe Chemicals took Sable Telecom to court in Kiel over 1,500,000 dollars.", {}),
        ("Sable Telecom was sued by Marlowe Chemicals for $1.5 million in Kiel on 5 March 2009.", {}),
        ("Marlowe sued Sable Telecom in Kiel on 5 March 2009 for $1.5 million.", {}),
        ("Sable Telecom sued Marlowe Chemicals in Kiel on 5 March 2009, seeking $1.5 million.", {"order": 1}),
        ("Marlowe Chemicals was sued by Sable Telecom for $1.5 million in Kiel on 5 March 2009.", {"order": 1}),
        ("Marlowe Chemicals sued Sable Telecom in Kiel on 6 March 2009, seeking $1.5 million.", {"date": 1}),
        ("Marlowe Chemicals sued Sable Telecom in Kiel on 5 March 2009, seeking $2.5 million.", {"number": 1}),
        ("Marlowe Chemicals sued Sable Telecom in Graz on 5 March 2009, seeking $1.5 million.", {"name": 1}),
        ("Marlowe Chemicals never sued Sable Telecom in Kiel on 5 March 2009 for $1.5 million.", {"polarity": 1}),
        ("Marlowe Chemicals may have sued Sable Telecom in Kiel on 5 March 2009 for $1.5 million.", {"modality": 1}),
        ("Marlowe Chemicals sued Sable Telecom in Kiel on 5 March 2009 for up to $1.5 million.", {"scope": 1}),
        ("Marlowe Chemicals sued Sable Telecom in Kiel.", {"number": 1, "date": 1}),
    ],
)
def test_every_kind_of_disagreement_is_told(evidence, kinds):
    assert differ(CLAIM, evidence) == kinds


def test_a_weaker_claim_is_implied_by_a_stronger_sentence_but_not_the_other_way_round():
    weak = "Marlowe Chemicals reportedly sued Sable Telecom for up to $1.5 million."
    assert differ(weak, TOLD[0]) == {}
    assert differ(TOLD[0], weak).keys() == {"date", "name", "modality", "scope"}
    assert differ("All workers left.", "Some workers left.") == {"scope": 1}


def test_equal_numbers_of_unlike_things_differ():
    claim, evidence = "Sable Telecom ordered 500 roof tiles.", "Sable Telecom ordered 500 insulin pumps."
    assert differ(claim, evidence, lambda first, second: first == second) == {"counted": 1}
    assert differ(claim, evidence) == {}


def test_sentences_complete_each_other_only_if_none_says_otherwise():
    def against(*evidence):
        return [compare(LEXICON.frame(CLAIM), LEXICON.frame(text), lambda first, second: True) for text in evidence]

    parts = ("Marlowe Chemicals sued Sable Telecom for $1.5 million.", "The case began in Kiel on 5 March 2009.")
    other_day = "The case began in Kiel on 6 March 2009."
    assert complete_each_other(against(*parts))
    assert not complete_each_other(against(parts[0], other_day))
    assert not complete_each_other(against(*parts, other_day))
    assert not complete_each_other(against(parts[0]))


def test_a_sentence_denies_a_claim_about_the_same_names_and_time_only():
    def denies(evidence):
        return compare(LEXICON.frame(CLAIM), LEXICON.frame(evidence), lambda first, second: True).denies

    assert denies("Marlowe Chemicals sued Sable Telecom in Kiel on 5 March 2009, seeking $2.5 million.")
    assert denies("Marlowe Chemicals did not sue Sable Telecom in Kiel in March 2009.")
    assert not denies("Marlowe Chemicals sued Sable Telecom in Kiel on 6 March 2009, seeking $2.5 million.")
    assert not denies(CLAIM)


def test_all_paraphrases_of_a_fact_agree_in_both_halves():
    for half in ("fit", "evaluation"):
        world = FactWorld(half, seed=3)
        facts = world.facts(60)
        told = [fact.sentence(number, style=STYLES[number % 3]) for fact in facts for number in range(4)]
        lexicon = Lexicon(told)
        clashes = 0
        for place in range(0, len(told), 4):
            frames = [lexicon.frame(text) for text in told[place : place + 4]]
            clashes += sum(
                compare(first, second, lambda first, second: True).mismatches.any
                for first in frames
                for second in frames
            )
        # 60 facts, 16 ordered pairs each: the rules read nearly every paraphrase alike.
        assert clashes <= 0.02 * 16 * 60
