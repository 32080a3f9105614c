"""Where sentences begin and end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.retrieval.veritrail import Node, Process, SentenceIndex
from gnomon.retrieval.veritrail.sentences import LONGEST, pieces, sentence_spans

# One text a line; "|" stands at the boundaries and is no part of the text, "~" is a line break.
REGRESSIONS = """
Dr. Okafor joined the board. |She left in 2019.
The U.S. agency filed suit. |It won.
He moved to the U.S. |The firm stayed.
The price rose to 3.5 percent. |Sales fell.
Revenue was $1.5 million. |Costs were $2.75 million.
She met Mr. and Mrs. Holm on Jan. 5. |They talked.
J. K. Rowling wrote it. |It sold.
See Fig. 3 and Sec. 4. |Then stop.
Corvus Inc. bought Marlowe Ltd. in 2019. |It paid cash.
It works for Sable Co. |The firm grew.
The meeting began at 3 p.m. in Kiel. |It ended late.
The meeting began at 3 p.m. |Nobody came.
"Is it true?" she asked. |He nodded.
"We will stop." |The board agreed.
It failed (see the report of 2019). |Nobody was hurt.
They sold kettles, e.g. to Braga, i.e. abroad. |Good.
Really? |Yes! |It did.
Wait... |It goes on.
He waited… then left. |Done.
The No. 4 site closed. |It was old.
It cost approx. 5 tonnes. |More later.
The deal, worth approx. $3 bn. in cash, was signed. |Fine.
Version 2.0.1 was released. |It works.
Prof. Lund et al. showed it. |It holds.
Gen. Marsh and Sen. Conti met. |They agreed.
It has 1.200,5 units. |Good.
St. Gallen is a city. |It is old.
Ph.D. students came. |They left.
Naïve café owners met in Tromsø. |Zoë spoke.
The U.N. and the E.U. agreed. |It was late.
John F. Kennedy spoke. |He won.
He paid 3 million yen.[1] |She paid 4.[2]
They met in Washington D.C. on Monday. |It rained.
It was founded in 1984. |1985 was better.
Apples, pears, etc. were sold. |Then it closed.
In Sept. 2019 it closed. |In Oct. it opened.
The firm (est. 1990) grew. |Fast.
# Results~|The plant closed. |It was old.
- Corvus left Kiel.~|- Marlowe stayed.~|- Sable grew
1. Corvus left.~|2. Marlowe stayed. |It grew.
Key findings~|- Corvus left.~|* Marlowe stayed.
| Firm | Year |~|--- a rule below ---
Background~|The plant in Kiel was closed.
The plant in Kiel, which had been open for thirty years, was closed~in May. |It was sold.
Corvus, Marlowe and Sable met in Kiel for the first time in ten years~- and they agreed.
The plant closed.~~|It was sold
""".strip().split("\n")


@pytest.mark.parametrize("line", REGRESSIONS)
def test_boundaries(line):
    table = line.startswith("| Firm")
    wanted = [line.split("~|")[0], "--- a rule below ---"] if table else line.replace("~", "\n").split("|")
    text = "\n".join(wanted) if table else line.replace("|", "").replace("~", "\n")
    marker = re.compile(r"^(?:#+|[-*]|\d\.)\s")
    found = [text[start:end] for start, end in sentence_spans(text)]
    assert found == [piece.strip() if table else marker.sub("", piece.strip()) for piece in wanted]


def test_rules_and_fences_of_markdown_are_no_sentences():
    text = "Title\n=====\n\n| a | b |\n|---|:--|\n| 1.5 | 2 |\n\n```text\nThe plant closed.\n```\n***\n"
    assert [text[a:b] for a, b in sentence_spans(text)] == ["Title", "| a | b |", "| 1.5 | 2 |", "The plant closed."]


@given(st.text(alphabet=st.sampled_from(list('ab A.!?;,\n#-|*1()"é\u00a0\u2028')), max_size=200))
def test_spans_are_in_order_apart_and_cover_every_word(text):
    spans = sentence_spans(text)
    end_before = 0
    for start, end in spans:
        assert end_before <= start < end <= len(text)
        assert text[start:end].strip() == text[start:end]
        end_before = end
    kept = "".join(text[start:end] for start, end in spans)
    assert re.sub(r"[^aéb]", "", kept) == re.sub(r"[^aéb]", "", text) or "|" in text or "```" in text


def test_a_sentence_without_end_is_cut_where_it_hurts_least():
    text = ("one two three, " * 400).strip()
    spans = sentence_spans(text)
    assert len(spans) == 4
    assert all(end - start <= LONGEST for start, end in spans)
    assert all(text[end - 1] == "," for _, end in spans)
    assert "".join(text[start:end] for start, end in spans).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "cut"), [("aaa; bb, cc dd", 4), ("aaaa, bb cc dd", 5), ("aaaa bb cc dd", 7), ("a" * 14, 8)]
)
def test_cuts_prefer_semicolons_then_commas_then_spaces(text, cut):
    assert pieces(text, (0, len(text)), 8)[0] == (0, cut)


def test_the_index_knows_sentences_by_node_and_id():
    process = Process([Node("a", "One stays. Two goes."), Node("b", "One stays.")], [("a", "b")])
    index = SentenceIndex(process)
    assert [sentence.id for sentence in index] == ["a#0", "a#1", "b#0"]
    assert index["a#1"].text == "Two goes."
    assert index["a#1"].span == (11, 20)
    assert [sentence.id for sentence in index.of_all(["b", "a"])] == ["b#0", "a#0", "a#1"]
    assert "b#1" not in index


def test_another_splitter_can_be_used():
    process = Process([Node("a", "One. Two."), Node("b", "Two.")], [("a", "b")])
    assert len(SentenceIndex(process, lambda text: [(0, len(text))])) == 2
