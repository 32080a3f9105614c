"""The judge check: a good judge passes, a coin does not."""

import pytest

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail.check import check_pairs, judge_check
from gnomon.retrieval.veritrail.judges.judge import Ruling
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.judges.oracle import OracleJudge, uniform


class Coin(OracleJudge):
    """Rules by chance."""

    def _ruled(self, task):
        score = uniform(0, task.claim.id)
        return Ruling("supported" if score > 0.5 else "unsupported", score)


class Silent(OracleJudge):
    """Never answers."""

    def rule(self, tasks):
        return [Missing("no answer")] * len(tasks)


def test_pairs_are_half_faithful_and_of_every_kind_of_error():
    pairs = check_pairs(60, seed=1)
    assert sum(pair.supports for pair in pairs) == 30
    assert len({pair.kind for pair in pairs}) == 11
    assert all(pair.claim != pair.sentence for pair in pairs)
    assert pairs == check_pairs(60, seed=1)
    with pytest.raises(ValueError, match="even number of at least 20"):
        check_pairs(7)


def test_the_offline_judge_is_valid_and_sees_all_core_errors():
    check = judge_check(OfflineJudge("tf-idf"))
    assert check.valid
    assert check.auroc.value > 0.9
    assert all(check.by_kind[kind] == 1 for kind in ("num", "date", "ent", "role", "fab"))
    assert check.summary()["valid"] is True


@pytest.mark.parametrize("judge", [Coin({}), Silent({})])
def test_chance_and_silence_are_not_valid(judge):
    check = judge_check(judge)
    assert not check.valid
    assert check.auroc.value < 0.7
    assert check.missing == (60 if isinstance(judge, Silent) else 0)
