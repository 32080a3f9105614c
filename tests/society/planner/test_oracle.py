"""Free-text signals are used only if an independent reader recovers them."""

import pytest

from gnomon.models.chat import ScriptedChat
from gnomon.society.planner.oracle import TextOracle
from gnomon.society.planner.scenarios import SCENARIOS

CAR = SCENARIOS["car"]


def writer(conversation):
    said = CAR.good if f"that {CAR.good}," in conversation[0]["content"] else CAR.bad
    return f"A mechanic looked at it: {said}."


def read(conversation, choices):
    message, question = conversation[0]["content"].split("\n\n")
    good_first = f"A: {CAR.good}" in question
    good = message.endswith(f"{CAR.good}.")
    # A reader with a strong bias for the first letter, which both orders together cancel.
    towards_first = 2.0 + (1.0 if good == good_first else -1.0)
    return {choices[0]: towards_first, choices[1]: 0.0}


def test_messages_that_are_understood_carry_their_precision():
    oracle = TextOracle(ScriptedChat("writer", reply=writer), CAR)
    found = oracle.calibrate(ScriptedChat("reader", score=read))
    assert found.achieved == found.requested
    assert (found.accuracy, found.missing, found.mean_gap) == (1.0, 0.0, 0.0)


def test_messages_that_say_nothing_are_refused():
    oracle = TextOracle(ScriptedChat("vague", reply=lambda conversation: "Who knows."), CAR)
    with pytest.raises(ValueError, match=r"off by 0.25 on average"):
        oracle.calibrate(ScriptedChat("reader", score=read))


def test_silent_writers_and_readers_are_missing_not_guessed():
    mute = TextOracle(ScriptedChat("mute"), CAR)
    assert mute.messages([1, -1], 0.7) == ["", ""]
    with pytest.raises(ValueError, match="reader recovers 50%"):
        TextOracle(ScriptedChat("writer", reply=writer), CAR).calibrate(ScriptedChat("deaf"))
