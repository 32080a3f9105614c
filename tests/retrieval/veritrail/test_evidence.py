"""Prompts that fit the judge's input: what is read, what is merged, what is dropped and what is said about it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail import Claim, Node, OracleJudge, Process, Sentence, SentenceIndex, verify
from gnomon.retrieval.veritrail.evidence import Found, exhibits, find_evidence
from gnomon.retrieval.veritrail.judges.judge import Selection, Usage
from gnomon.retrieval.veritrail.reading import portions, sentence_tokens, token_count

CLAIM = Claim("c", "Corvus closed its plant.")


def sentences(node, *lengths):
    return [Sentence(f"{node}#{i}", node, "x" * length, (0, length)) for i, length in enumerate(lengths)]


def ids(cut):
    return [[sentence.id for sentence in portion] for portion in cut]


def test_tokens_are_quarters_of_characters_rounded_up():
    assert [token_count(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_without_a_limit_everything_is_read_at_once():
    assert ids(portions([*sentences("a", 9), *sentences("b", 9)], None)) == [["a#0", "b#0"]]
    assert portions([], None) == portions([], 10) == ()


def test_nodes_stay_whole_where_they_fit():
    read = [*sentences("a", 40, 40), *sentences("b", 40), *sentences("c", 40, 40)]  # 14 tokens a sentence
    assert ids(portions(read, 42)) == [["a#0", "a#1", "b#0"], ["c#0", "c#1"]]


def test_a_node_over_the_limit_is_cut_with_one_sentence_of_overlap():
    read = [*sentences("a", 40, 40, 40, 40), *sentences("b", 4)]
    assert ids(portions(read, 30)) == [["a#0", "a#1"], ["a#1", "a#2"], ["a#2", "a#3"], ["b#0"]]


def test_no_overlap_where_two_sentences_do_not_fit_together():
    assert ids(portions(sentences("a", 40, 40, 400, 40), 20)) == [["a#0"], ["a#1"], ["a#2"], ["a#3"]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=6), max_size=5), st.integers(5, 80))
def test_every_sentence_is_read_in_order_and_no_portion_of_several_is_too_large(nodes, limit):
    read = [s for number, lengths in enumerate(nodes) for s in sentences(f"n{number}", *lengths)]
    cut = portions(read, limit)
    assert list(dict.fromkeys(s for portion in cut for s in portion)) == read
    assert all(len(portion) == 1 or sum(map(sentence_tokens, portion)) <= limit for portion in cut)


def long_process():
    """Two sources and two summaries, the claim stated once in a source of 30 sentences and in one summary."""
    said = "Corvus closed its plant in the spring."
    filler = [f"Sentence number {i} is about something else entirely." for i in range(29)]
    nodes = [
        Node("a", " ".join([*filler[:20], said, *filler[20:]])),
        Node("b", " ".join(filler)),
        Node("c", f"{filler[0]} {said}"),
        Node("d", filler[1]),
        Node("t", said),
    ]
    return Process(nodes, [("a", "c"), ("b", "d"), ("c", "t"), ("d", "t")])


@pytest.mark.parametrize("limit", [None, 500, 60, 15])
def test_the_verdict_and_its_path_do_not_depend_on_the_limit(limit):
    judge = OracleJudge({"c": {"a#20", "c#1"}})
    (trail,) = verify(long_process(), judge=judge, claims=[CLAIM], max_input_tokens=limit).claims
    assert (trail.verdict, trail.provenance.paths) == ("supported", (("a", "c", "t"),))
    assert trail.iterations[-1].truncated == (limit is not None and limit < 400)  # source a has 370 tokens


class Scripted(OracleJudge):
    """Answers selections from a list, one a task, and notes what it was asked."""

    def __init__(self, *answers):
        super().__init__({})
        self.answers = list(answers)
        self.tasks = []

    def select(self, tasks):
        self.tasks += tasks
        return [self.answers.pop(0) for _ in tasks]


def test_portions_are_merged_into_one_finding():
    process = long_process()
    index = SentenceIndex(process)
    judge = Scripted(
        Selection(("a#1", "a#0"), "first", scores=(0.2, 0.9), usage=Usage(calls=1, tokens_in=50)),
        Selection(("c#1", "a#1", "made-up"), "second", scores=(0.4, 0.5, 1.0), usage=Usage(calls=1, tokens_in=70)),
    )
    read = (index.of("a")[:2], (index.of("a")[1], *index.of("c")))
    (found,) = find_evidence(judge, [(CLAIM, read)])
    assert [sentence.id for sentence in found.sentences] == ["a#0", "a#1", "c#1"]
    assert found.scores == {"a#0": 0.9, "a#1": 0.5, "c#1": 0.4}
    assert found.summaries == {"a": "first second", "c": "second"}
    assert found.hallucinated == 1
    assert found.usage == Usage(calls=2, tokens_in=120, sentences=5)


def test_a_portion_without_an_answer_makes_the_whole_search_missing():
    index = SentenceIndex(long_process())
    judge = Scripted(Selection(()), Missing("gone"), Selection(("d#0",)))
    first, second = find_evidence(judge, [(CLAIM, (index.of("a"), index.of("b"))), (CLAIM, (index.of("d"),))])
    assert first == Missing("gone")
    assert [sentence.id for sentence in second.sentences] == ["d#0"]


def test_texts_are_those_of_the_process_whatever_the_judge_says():
    judge = Scripted(Selection(("c#1",), "Corvus never closed anything."))
    index = SentenceIndex(long_process())
    (found,) = find_evidence(judge, [(CLAIM, (index.of("c"),))])
    assert found.sentences == (index["c#1"],)


def shown(process, found, limit, judge=None):
    (exhibit,) = exhibits(judge or Scripted(), process, [(CLAIM, found)], limit)
    return exhibit


def test_source_documents_are_shown_whole_and_generated_texts_by_sentences_and_summary():
    process = long_process()
    index = SentenceIndex(process)
    exhibit = shown(process, Found((index["a#20"], index["c#1"]), summaries={"a": "x", "c": "y"}), None)
    a, c = exhibit.evidence
    assert (a.node, a.text, a.summary) == ("a", process.nodes["a"].text, "")
    assert (c.node, c.text, c.summary, c.sentences) == ("c", "", "y", (index["c#1"],))
    assert not exhibit.truncated


def test_evidence_over_the_limit_is_searched_once_more_by_itself():
    process = long_process()
    index = SentenceIndex(process)
    many = Found(index.of("b") + index.of("d"), usage=Usage(calls=1))
    judge = Scripted(Selection(("d#0",), usage=Usage(calls=1)))
    exhibit = shown(process, many, 800, judge)
    assert [task.sentences for task in judge.tasks] == [index.of("b") + index.of("d")]
    assert [entry.node for entry in exhibit.evidence] == ["d"]
    assert not exhibit.truncated
    assert exhibit.usage == Usage(calls=2, sentences=30)


class Narrowing(OracleJudge):
    """Drops so many sentences a selection, from the beginning; later sentences have larger scores."""

    def __init__(self, fewer):
        super().__init__({})
        self.fewer, self.rounds = fewer, 0

    def select(self, tasks):
        (task,) = tasks
        self.rounds += 1
        kept = task.sentences[self.fewer :]
        return [Selection(tuple(s.id for s in kept), scores=tuple(float(s.id.split("#")[1]) for s in kept))]


@pytest.mark.parametrize(("fewer", "rounds"), [(1, 3), (0, 1)])
def test_evidence_is_narrowed_three_times_as_long_as_that_leaves_less(fewer, rounds):
    process = long_process()
    index = SentenceIndex(process)
    chosen = index.of("b")[:20]
    judge = Narrowing(fewer)
    # Twenty sentences fit a prompt; with the whole document of thirty they are too much for a verdict.
    limit = 20 * sentence_tokens(chosen[-1])
    found = Found(chosen, {s.id: float(place) for place, s in enumerate(chosen)})
    exhibit = shown(process, found, limit, judge)
    assert judge.rounds == rounds
    assert exhibit.truncated
    assert exhibit.evidence[0].text == ""
    assert exhibit.evidence[0].sentences == chosen[3 * fewer :]


def test_the_sentences_of_lowest_score_are_dropped_first():
    process = long_process()
    index = SentenceIndex(process)
    chosen = index.of("b")[:6]
    scores = dict(zip((s.id for s in chosen), (5.0, 1.0, 4.0, 1.0, 6.0, 0.0), strict=True))
    exhibit = shown(process, Found(chosen, scores), 3 * sentence_tokens(chosen[0]), Scripted(*[Selection(())] * 9))
    assert [sentence.id for sentence in exhibit.evidence[0].sentences] == ["b#0", "b#2", "b#4"]
    # Of two alike, the later one goes.
    exhibit = shown(process, Found(chosen, scores), 4 * sentence_tokens(chosen[0]), Scripted(*[Selection(())] * 9))
    assert [sentence.id for sentence in exhibit.evidence[0].sentences] == ["b#0", "b#1", "b#2", "b#4"]


def test_one_sentence_is_kept_however_small_the_limit():
    process = long_process()
    index = SentenceIndex(process)
    exhibit = shown(process, Found(index.of("c"), {"c#0": 0.1, "c#1": 0.9}), 1, Scripted(*[Selection(())] * 9))
    assert [sentence.id for sentence in exhibit.evidence[0].sentences] == ["c#1"]
    assert exhibit.truncated
