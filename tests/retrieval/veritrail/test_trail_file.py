"""Trails on disk."""

import json
import math

import pytest

from gnomon.models.chat import Missing
from gnomon.retrieval.veritrail import Claim, ClaimTrail, Dropped, OracleJudge, Trail, verify
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.trail import failed
from gnomon.retrieval.veritrail.trail_file import FORMAT, read_trail, write_trail


@pytest.fixture(scope="module")
def trail():
    process, truth = make_process(3, p_conflict=0.1)
    judge = OracleJudge({claim.claim.id: claim.supporting for claim in truth.claims})
    found = verify(process, judge=judge, claims=truth.texts)
    silent = failed(Claim("silent", "Nobody answered."), Missing("the server is down"), ())
    dropped = (Dropped("final#0", "So be it.", "unverifiable", "a conclusion"),)
    return Trail(found.process, (*found.claims, silent), dropped, found.judge, {"valid": True}, found.settings)


def test_a_trail_comes_back_equal(trail, tmp_path):
    write_trail(trail, tmp_path / "trail.json")
    again = read_trail(tmp_path / "trail.json")
    assert math.isnan(again.claims[-1].score)
    # Two NaN are not equal, all else is.
    assert repr(again) == repr(trail)
    assert again.claims[:-1] == trail.claims[:-1]
    assert isinstance(again.claims[0], ClaimTrail)


def test_the_file_is_plain_json_and_holds_every_text_once(trail, tmp_path):
    path = tmp_path / "trail.json"
    write_trail(trail, path)
    content = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["format"] == FORMAT
    cited = {
        sentence.id: sentence.text
        for claim in trail.claims
        for step in claim.iterations
        for evidence in step.evidence
        for sentence in evidence.sentences
    }
    assert {name: each["text"] for name, each in content["sentences"].items()} == cited
    assert content["claims"][-1]["problem"] == "the server is down"
    assert content["claims"][-1]["score"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("format"), "is no trail of the format"),
        (lambda content: content.update(format="other/2"), "is no trail of the format"),
        (lambda content: content.pop("sentences"), "is damaged: KeyError 'sentences'"),
        (lambda content: content["sentences"].clear(), "is damaged: KeyError"),
        (lambda content: content["candidates"].clear(), "is damaged: IndexError"),
        (lambda content: content["claims"][0].update(verdict="maybe"), r"claims\.0\.verdict: Input should be"),
        (lambda content: content.pop("judge"), "judge"),
    ],
)
def test_faults_are_named(trail, tmp_path, change, message):
    path = tmp_path / "trail.json"
    write_trail(trail, path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read_trail(path)
    assert str(path) in str(caught.value)


def test_no_file_and_no_json(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        read_trail(tmp_path / "absent.json")
    (tmp_path / "trail.json").write_text("{")
    with pytest.raises(ValueError, match=r"trail\.json is no JSON"):
        read_trail(tmp_path / "trail.json")
