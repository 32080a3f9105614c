"""Chat models of a run, against a real server: limits hold over units and starts, and only what is missing is asked."""

import pickle

import pytest

from gnomon.chats import RunChats
from gnomon.studies.unit import Missing


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    return tmp_path


def questions(count):
    return [[{"role": "user", "content": f"question {index}"}] for index in range(count)]


def test_calls_are_limited_over_units_and_starts_of_a_run(chat_server, own_cache):
    server = chat_server(lambda body: "Yes.")
    chats = RunChats(max_calls=3).for_run(own_cache / "run")
    chat = pickle.loads(pickle.dumps(chats))(f"m@{server.url}")
    with pytest.raises(Missing, match="2 calls without an answer: budget of 3 calls is spent"):
        chat.complete(questions(5))
    with pytest.raises(Missing, match="budget of 3 calls is spent"):
        chats(f"m@{server.url}").complete(questions(6))
    assert len(server.requests) == 3
    assert chats.spent() == {"calls": 3, "cost": 0.0}
    # A later start of the run with a higher limit repeats no call that was answered.
    more = RunChats(max_calls=5).for_run(own_cache / "run")
    assert len(more(f"m@{server.url}").complete(questions(5))) == 5
    assert len(server.requests) == 5
    assert len({str(body["messages"]) for body in server.requests}) == 5


def test_another_run_has_a_ledger_of_its_own(chat_server, own_cache):
    server = chat_server(lambda body: "Yes.")
    for name in ("one", "two"):
        chats = RunChats(max_calls=1).for_run(own_cache / name)
        chats(f"m@{server.url}").complete([[{"role": "user", "content": name}]])
        assert chats.spent()["calls"] == 1
    assert RunChats().for_run(own_cache / "three").spent() == {}


def test_cost_is_limited_by_the_prices_given(chat_server, own_cache):
    server = chat_server(lambda body: "Yes.")
    # 100 tokens read and 10 written a call: .0012 + .0018 = .003.
    chats = RunChats.limited(None, 0.002, "12,180").for_run(own_cache / "run")
    chat = chats(f"m@{server.url}")
    chat.complete(questions(1))
    with pytest.raises(Missing, match=r"budget of 0.002 is spent \(0.003\)"):
        chat.complete(questions(2))
    assert chats.spent() == {"calls": 1, "cost": pytest.approx(0.003)}


def test_a_server_that_is_down_leaves_the_unit_to_be_resumed(chat_server, own_cache):
    up = []
    server = chat_server(lambda body: "Yes." if up or "question 0" in str(body) else None)
    chat = RunChats().for_run(own_cache / "run")(f"m@{server.url}")
    with pytest.raises(Missing, match="1 calls without an answer: InternalServerError"):
        chat.complete(questions(2))
    up.append(True)
    before = len(server.requests)
    assert [answer.text for (answer,) in chat.complete(questions(2))] == ["Yes.", "Yes."]
    assert len(server.requests) == before + 1


def test_choices_that_run_out_of_budget_are_not_scored_from_fewer_samples(chat_server, own_cache):
    server = chat_server(lambda body: "A")  # no log-probabilities: choices are sampled
    chat = RunChats(max_calls=4).for_run(own_cache / "run")(f"m@{server.url}")
    with pytest.raises(Missing, match="budget of 4 calls is spent"):
        chat.choice_logprobs(questions(1), ["A", "B"])


def test_answers_that_cannot_be_scored_stay_missing_data(chat_server, own_cache):
    server = chat_server(lambda body: "Yes.")
    (answer,) = RunChats().for_run(own_cache / "run")(f"m@{server.url}").sequence_logprobs(questions(1), [" 0.50"])
    assert "does not score given text" in answer.reason


@pytest.mark.parametrize("prices", ["12", "a,b", "1,-2", "1,nan", "1,2,3"])
def test_prices_are_two_numbers(prices):
    with pytest.raises(ValueError, match=r"--prices takes two numbers such as 0\.15,0\.60, got"):
        RunChats.limited(None, None, prices)


def test_a_limit_on_cost_needs_prices():
    with pytest.raises(ValueError, match="--max-cost needs --prices IN,OUT"):
        RunChats.limited(5, 1.0, None)
