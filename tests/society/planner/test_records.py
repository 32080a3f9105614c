"""Records of decisions: read from files with clear errors, and what agents believed read out of them."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from gnomon.society.planner.agents import GretherAgent
from gnomon.society.planner.estimation import estimate_agent
from gnomon.society.planner.readouts import ask_agents
from gnomon.society.planner.records import Record, answers, as_records, read_records, write_records
from gnomon.society.planner.replay import ReplayedAgent
from gnomon.society.planner.scenarios import SCENARIOS
from gnomon.society.planner.scripted import scripted_agent

ROUND = {"run_id": "7", "round": 2, "omega": 1, "b_public": 0.5, "q_declared": 0.7, "q_used": 0.7, "signal": -1}
PLANTED = GretherAgent(0.8, 0.6, 1.4)
FIELDS = (
    "run_id seed scenario paraphrase role backend model prompt_sha round omega b_public q_declared q_used signal "
    "belief_reported action logprob_A logprob_B label_order tokens parse_ok"
)


@pytest.fixture(scope="module")
def letters():
    """Answers of a scripted agent that prefers the letter A, as records."""
    frames = []
    for name, scenario in SCENARIOS.items():
        for paraphrase in range(2):
            asked = ask_agents(
                scripted_agent("planted", PLANTED, scenario),
                scenario,
                paraphrase,
                beliefs=(0.2, 0.35, 0.5, 0.65, 0.8),
                precisions=(0.6, 0.75, 0.9),
            )
            frames.append(as_records(asked, scenario=name, paraphrase=paraphrase, model="planted"))
    return pd.concat(frames, ignore_index=True)


def people(count=3, noise=0.0):
    """Stated beliefs of people who weigh their prior by .9, as a study of people would have them."""
    rng = np.random.default_rng(0)
    rows = []
    for person in range(count):
        for b in (0.3, 0.5, 0.7):
            for q in (0.6, 0.9):
                for signal in (1, -1):
                    belief = float(expit(0.9 * logit(b) + signal * logit(q) + rng.normal(0, noise)))
                    row = {"run_id": f"person-{person}", "b_public": b, "q_declared": q, "signal": signal}
                    rows.append(row | {"belief_reported": belief, "action": 1 if belief > 0.5 else -1})
    return pd.DataFrame(rows)


def lines(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_the_schema_is_the_published_one():
    assert list(Record.model_fields) == FIELDS.split()


@pytest.mark.parametrize("name", ["log.jsonl", "log.csv"])
def test_what_is_written_is_read_again(tmp_path, letters, name):
    write_records(letters, tmp_path / name)
    again = read_records(tmp_path / name)
    assert again.index.name == "line"
    columns = ["scenario", "paraphrase", "b_public", "signal", "logprob_A", "label_order", "prompt_sha"]
    expected = letters[columns].astype({"signal": float})
    pd.testing.assert_frame_equal(again[columns].reset_index(drop=True), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_used": 0.3}, "line 2: q_used: Input should be greater than or equal to 0.5, got 0.3"),
        ({"b_public": 1.5}, "line 2: b_public: Input should be less than or equal to 1, got 1.5"),
        ({"signal": 0}, r"line 2: signal: Value error, should be 1 \(good\) or -1 \(bad\), got 0"),
        ({"omega": "G"}, "line 2: omega: Input should be a valid integer.*, got 'G'"),
        ({"belief_reported": 1.0}, "line 2: belief_reported: Input should be less than 1, got 1.0"),
        ({"label_order": "A"}, "line 2: label_order: Input should be 'good-first' or 'bad-first', got 'A'"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_line(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read_records(lines(tmp_path / "log.jsonl", ROUND, ROUND | change))


def test_lines_that_are_no_records_are_named(tmp_path):
    path = tmp_path / "log.jsonl"
    with pytest.raises(ValueError, match=r"line 3: no JSON \(.* at column"):
        read_records(lines(path, ROUND, "", "{broken"))
    with pytest.raises(ValueError, match=r"line 1: q_declared: Field required$"):
        read_records(lines(path, {"b_public": 0.5}))
    with pytest.raises(ValueError, match="line 1: Input should be a valid dictionary or instance of Record"):
        read_records(lines(path, "[1, 2]"))
    with pytest.raises(ValueError, match="holds no records"):
        read_records(lines(path, ""))
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "absent.jsonl")


def test_a_csv_names_its_lines_as_an_editor_does(tmp_path):
    path = lines(tmp_path / "log.csv", "b_public,q_declared,signal", "0.5,0.7,1", "0.5,70,1")
    with pytest.raises(ValueError, match="line 3: q_declared: Input should be less than or equal to 1, got '70'"):
        read_records(path)


def test_a_planted_bias_is_recovered_from_letters_in_both_orders(letters):
    fit = estimate_agent(answers(letters))
    assert (fit.alpha.value, fit.gamma_agree.value, fit.gamma_contra.value) == pytest.approx((0.8, 0.6, 1.4))
    assert len(fit.by_cluster) == 6
    assert fit.by_cluster["intercept"].abs().max() < 1e-9


def test_one_label_order_is_refused(letters):
    with pytest.raises(ValueError, match="row 0: the question was asked in one label order only"):
        answers(letters.query("label_order == 'good-first'"))


def test_too_many_missing_answers_are_refused_and_few_are_left_out(letters):
    both_orders = letters.index // 2
    few = letters.assign(parse_ok=both_orders != 0)
    assert len(answers(few)) == len(answers(letters)) - 1
    # One of the two label orders is not enough: the question is left out with it.
    assert len(answers(letters.assign(parse_ok=letters.index != 7))) == len(answers(letters)) - 1
    with pytest.raises(ValueError, match="10% of 360 answers are missing, more than 5%"):
        answers(letters.assign(parse_ok=both_orders % 10 != 0))
    with pytest.raises(ValueError, match="no record has an agent's signal"):
        answers(letters.assign(signal=np.nan))
    with pytest.raises(ValueError, match="records lack the columns b_public; they have"):
        answers(letters.drop(columns="b_public"))


def test_people_are_estimated_from_stated_beliefs(tmp_path):
    path = tmp_path / "people.csv"
    write_records(people(), path)
    fit = estimate_agent(answers(read_records(path)))
    assert fit.alpha.value == pytest.approx(0.9)
    assert fit.by_cluster["cluster"].tolist() == ["person-0", "person-1", "person-2"]


def test_recorded_people_can_be_replayed_as_agents():
    recorded = people(40, noise=1.0)
    agent = ReplayedAgent.of(recorded)
    asked = agent.probability_good(np.array([logit(0.3), logit(0.31), logit(0.3)]), logit([0.9, 0.9, 0.6]), 1)
    expected = [
        np.mean(recorded.query("b_public == 0.3 and q_declared == @q and signal == 1")["action"] > 0)
        for q in (0.9, 0.9, 0.6)
    ]
    assert asked.tolist() == pytest.approx(expected)
    assert 0 < asked[2] < asked[0] < 1
    with pytest.raises(ValueError, match="no record has both a signal and an action"):
        ReplayedAgent.of(recorded.assign(action=np.nan))
