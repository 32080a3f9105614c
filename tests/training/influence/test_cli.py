"""``gnomon influence rank`` on a record and on a finished Trainer run; the example script."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import Trainer, TrainingArguments
from typer.testing import CliRunner

from gnomon.models.tiny import tiny_decoder, word_tokenizer
from gnomon.training.influence import FInfluence
from gnomon.training.influence.cli import app
from gnomon.training.influence.instructions import encode_answers, read_instructions

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:examples were observed")]
ROOT = Path(__file__).parents[3]


def invoke(*arguments):
    return CliRunner().invoke(app, ["rank", *map(str, arguments)])


@pytest.fixture
def record(task, losses, tmp_path):
    folder = tmp_path / "record"

    def recorder_of(net, optimizer):
        pool = ((task.inputs, task.labels), range(60))
        return FInfluence(net, losses, query=task.query, optimizer=optimizer, pool=pool, batch_size=12, folder=folder)

    with task.train(recorder_of):
        return folder


def test_record_is_ranked_with_its_null(record, tmp_path):
    words = tmp_path / "words.jsonl"
    words.write_text("".join(json.dumps({"text": f"example number {number}"}) + "\n" for number in range(60)))
    done = invoke(record, "--top", 5, "--out", tmp_path / "out", "--data", words)
    assert done.exit_code == 0, done.output
    for said in ("distinct scores 100%", "random groups", "positive: the example lowers the query loss"):
        assert said in " ".join(done.output.split())
    table = pd.read_csv(tmp_path / "out" / "top.csv")
    assert len(table) == 10
    assert table["mu_run"].is_monotonic_decreasing
    assert (table["text"] == [f"example number {index}" for index in table["index"]]).all()
    assert table["null_quantile"].iloc[0] > 0.5 > table["null_quantile"].iloc[-1]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["distinct"] == 1
    assert summary["top_group"]["p"] < 0.01
    assert len(pd.read_parquet(tmp_path / "out" / "scores.parquet")) == 60


def test_wrong_use_is_one_clear_line(record, tmp_path):
    cases = {
        (tmp_path / "nowhere",): (FileNotFoundError, "is not a folder"),
        (record, "--target", "queries.jsonl"): (ValueError, "is a record: its inner products are with query"),
        (record, "--estimator", "best"): (ValueError, "unknown estimator 'best'"),
        (tmp_path,): (FileNotFoundError, "no checkpoint-"),
    }
    for arguments, (kind, message) in cases.items():
        done = invoke(*arguments)
        assert isinstance(done.exception, kind)
        assert message in str(done.exception)


def test_run_is_ranked_from_its_checkpoints(tmp_path):
    tokenizer = word_tokenizer(["the", "sky", "sea", "is", "blue", "red", "green", "calm"])
    rows = [("the sky is", "blue"), ("the sky is", "red"), ("the sea is", "green"), ("the sea is", "calm")] * 4
    train = tmp_path / "run" / "train.jsonl"
    train.parent.mkdir()
    train.write_text("".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in rows))
    query = tmp_path / "query.jsonl"
    query.write_text(json.dumps({"prompt": "the sky is", "answer": "blue"}) + "\n")
    batch = encode_answers(tokenizer, rows, start=1)
    data = [{name: value[row] for name, value in batch.items()} for row in range(len(rows))]
    model = tiny_decoder("llama", vocab=len(tokenizer), width=16, layers=1, heads=2, kv_heads=1, mlp_width=16).train()
    options = {"max_steps": 20, "save_steps": 4, "logging_steps": 1, "per_device_train_batch_size": 8, "use_cpu": True}
    arguments = TrainingArguments(
        str(tmp_path / "run"),
        report_to=[],
        disable_tqdm=True,
        learning_rate=1e-2,
        dataloader_pin_memory=False,
        **options,
    )
    Trainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
    done = invoke(tmp_path / "run", "--target", query, "--top", 4, "--out", tmp_path / "out", "--blocks", 1)
    assert done.exit_code == 0, (done.output, done.exception)
    table = pd.read_csv(tmp_path / "out" / "top.csv")
    assert (table["text"][:4] == "the sky is blue").all()
    assert not (table["text"][4:] == "the sky is blue").any()
    no_target = invoke(tmp_path / "run")
    assert "needs --target FILE" in str(no_target.exception)


def test_instructions_are_read_line_by_line(tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text('{"prompt": "a", "answer": "b", "index": 7}\n\n{"text": "c d"}\n')
    first, last = read_instructions(file)
    assert (first.index, first.text, last.index, last.prompt) == (7, "a b", 2, "")
    for content, message in {
        "": "has no examples",
        "{": r"data\.jsonl:1 is not JSON",
        '{"question": 1}': "needs 'prompt' and 'answer', or 'text'",
        '{"text": "a", "index": 1}\n{"text": "b"}': "gives an index twice",
    }.items():
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_instructions(file)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_instructions(tmp_path / "none")


def test_only_answers_are_labelled():
    tokenizer = word_tokenizer(["a", "b", "c"])
    batch = encode_answers(tokenizer, [("a b", "c"), ("", "b c a")], start=1)
    assert batch["input_ids"].tolist() == [[1, 3, 4, 5], [1, 4, 5, 3]]
    assert batch["labels"].tolist() == [[-100, -100, -100, 5], [-100, 4, 5, 3]]
    cut = encode_answers(tokenizer, [("a b a b a b", "c")], start=1, max_tokens=4)
    assert cut["input_ids"].tolist() == [[1, 3, 4, 5]]
    assert cut["labels"].tolist() == [[-100, -100, -100, 5]]
    with pytest.raises(ValueError, match="example 0 has no token to learn"):
        encode_answers(tokenizer, [("a b", "")])


def test_example_finds_the_mislabelled(capsys):
    with torch.random.fork_rng():
        runpy.run_path(str(ROOT / "examples" / "influence.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "p 0.002" in said
    found = int(said.partition("mislabelled among the fifty most harmful: ")[2].split()[0])
    assert found >= 25
