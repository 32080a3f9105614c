"""Claims by rules of English."""

import warnings

import pytest

from gnomon.data.fact_world import FactWorld
from gnomon.retrieval.veritrail import Node, Process, SentenceIndex
from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.extraction import decompose_by_rules, extract_by_rules, parts, statements, unverifiable


def extracted(text):
    return extract_by_rules(SentenceIndex(Process([Node("source", "x"), Node("final", text)], [("source", "final")])))


@pytest.mark.parametrize("half", ["fit", "evaluation"])
def test_reports_of_the_fact_world_come_through_word_for_word(half):
    facts = FactWorld(half, seed=3).facts(60)
    texts = [fact.sentence(k, negated=negated) for fact in facts for k in range(4) for negated in (False, True)]
    extraction = extracted("\n\n".join(texts))
    assert [claim.text for claim in extraction.claims] == texts
    assert extraction.dropped == ()


def test_claims_know_their_sentence():
    text = (
        "Corvus left Kiel in 2019. That should worry us. Marlowe Chemicals stayed in Bristol, and it hired 30 people."
    )
    extraction = extracted(text)
    assert [(claim.id, claim.sentence, text[slice(*claim.span)]) for claim in extraction.claims] == [
        ("c1", "final#0", "Corvus left Kiel in 2019."),
        ("c2", "final#2", "Marlowe Chemicals stayed in Bristol, and it hired 30 people."),
        ("c3", "final#2", "Marlowe Chemicals stayed in Bristol, and it hired 30 people."),
    ]
    assert [claim.text for claim in extraction.claims[1:]] == [
        "Marlowe Chemicals stayed in Bristol.",
        "Marlowe Chemicals hired 30 people.",
    ]
    assert [(each.sentence, each.why, each.reason) for each in extraction.dropped] == [
        ("final#1", "unverifiable", "advice")
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Firms should plan ahead.", "advice"),
        ("Was the plant in Kiel closed?", "a question"),
        ("In summary, the year 2019 was good.", "a conclusion"),
        ("This report describes the year 2019.", "an introduction"),
        ("The documents do not say who paid in 2019.", "a statement about missing information"),
        ("This highlights the importance of the site.", "an opinion"),
        ("Annual results 2019", "no verb"),
        ("People were happy.", "nothing specific: no number, name or definite noun"),
        ("Companies thrive and have plans.", "nothing specific: no number, name or definite noun"),
        ("Corvus closed a plant.", ""),
        ("A plant was closed in 2019.", ""),
        ("The plant was closed.", ""),
        ("It closed.", ""),
    ],
)
def test_what_is_verifiable(text, reason):
    assert unverifiable(text) == reason


@pytest.mark.parametrize(
    ("before", "sentence", "claim"),
    [
        ("Greta Holm left in 2019.", "She won a prize.", "Greta Holm won a prize."),
        ("Corvus closed.", "Its plant was sold.", "Corvus's plant was sold."),
        ("Workers went on strike in Kiel.", "They came back in May.", "Workers came back in May."),
        ("Corvus sued Marlowe Chemicals.", "It won the case.", None),
        ("The rain was heavy.", "It flooded the plant.", None),
        (
            "Corvus sued Marlowe Chemicals.",
            "It was announced that the case was over.",
            "It was announced that the case was over.",
        ),
    ],
)
def test_a_pronoun_is_resolved_where_only_one_name_can_be_meant(before, sentence, claim):
    extraction = extracted(f"{before} {sentence}")
    if claim is None:
        assert [each.why for each in extraction.dropped] == ["ambiguous"]
        assert extraction.dropped[0].text == sentence
    else:
        assert extraction.claims[-1].text == claim


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("A fire broke out in Kiel; the damage came to $2 million.", None),
        ("A new plant was opened in Kiel; it created 30 jobs.", None),
        ("Corvus, which left Kiel in 2019, sold its plant.", None),
        ("Corvus sold its plant; and Marlowe bought it.", ("Corvus sold its plant.", "Marlowe bought it.")),
    ],
)
def test_only_statements_that_stand_alone_are_separated(text, claims):
    assert statements(text) == (claims or (text,))


def test_parts_of_a_claim():
    assert parts("Corvus closed its plant.") == ()
    decomposed = decompose_by_rules([Claim("c", "Staff walked out in Kiel, and 500 people took part.")])
    assert decomposed[0].subclaims == ("Staff walked out in Kiel", "500 people took part")


def test_marks_of_citation_and_emphasis_are_no_part_of_a_claim():
    extraction = extracted("**Corvus** closed its `plant` in\n2019 [Data: Reports (1, 2)].")
    assert [claim.text for claim in extraction.claims] == ["Corvus closed its plant in 2019."]


def test_texts_in_other_languages_are_warned_about():
    german = (
        "Die Firma hat ihr Werk in Kiel nach einem Brand geschlossen und alle Leute entlassen, sagte Greta Holm. " * 3
    )
    with pytest.warns(UserWarning, match="does not look like English"):
        extracted(german)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extracted("The firm has closed its plant in Kiel after a fire and let all of its people go. " * 3)
