"""A local chat model: cached scoring equals plain scoring, and answers depend on the request alone."""

import math

import pytest

from gnomon.models.chat import Reply
from gnomon.models.load import load
from gnomon.models.local_chat import LocalChat, common_prefix, shared_prefixes
from gnomon.models.scoring import token_log_probs


def asked(question):
    return [{"role": "user", "content": question}]


@pytest.fixture(scope="module")
def chat():
    return LocalChat(load("smollm2", attn="sdpa"))


@pytest.mark.model
def test_scores_through_the_shared_prefix_equal_plain_scores(chat):
    begun = {"role": "assistant", "content": "Answer:"}
    conversations = [[*asked(f"Is {thing} blue? Say yes or no."), begun] for thing in ("the sky", "the sea", "grass")]
    continuations = [" yes", " no, it is not", " 0.75"]
    loaded = load("smollm2", attn="sdpa")
    scored = chat.sequence_logprobs(conversations, continuations)
    for conversation, scores in zip(conversations, scored, strict=True):
        prefix = chat._prefix(conversation)
        answers = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in continuations]
        plain = token_log_probs(loaded.model, [prefix + answer for answer in answers])
        expected = [float(row[len(prefix) - 1 :].sum()) for row in plain]
        # 1e-3: rounding of differently shaped matrix products over 30 layers.
        assert scores == pytest.approx(expected, abs=1e-3)


@pytest.mark.model
def test_choices_sum_to_one_and_replies_are_reproducible(chat):
    (scores,) = chat.choice_logprobs([asked("Is the sky blue? A: yes, B: no. Answer with a letter.")], ["A", "B"])
    assert sum(map(math.exp, scores.logprobs.values())) == pytest.approx(1.0)
    question = asked("Name a colour.")
    ((first, second),) = chat.complete([question], n=2, temperature=1.0, max_tokens=6)
    ((again, _),) = chat.complete([question], n=2, temperature=1.0, max_tokens=6)
    assert isinstance(first, Reply)
    assert first == again
    assert first.text != second.text


@pytest.mark.model
def test_reported_token_log_probabilities_are_those_of_the_reply(chat):
    ((reply,),) = chat.complete([asked("Say hello.")], max_tokens=4, logprobs=True)
    assert "".join(token.token for token in reply.logprobs).startswith(reply.text[:3])
    assert all(token.logprob == pytest.approx(max(token.top.values()), abs=1e-5) for token in reply.logprobs)


def test_prefixes_are_grouped_by_what_they_share():
    assert common_prefix([[1, 2, 3]]) == [1, 2, 3]
    assert common_prefix([[1], [2]]) == []
    sequences = [[5, 5, 5, 1], [9, 9], [5, 5, 5, 2], [9, 8]]
    groups = shared_prefixes(sequences)
    assert sorted(sorted(group) for group in groups) == [[0, 2], [1, 3]]
