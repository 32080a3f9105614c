"""``gnomon rope-heads scores`` on a user's model and text."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from gnomon.data.corpora import prose
from gnomon.mechanisms.rope_heads.cli import app
from gnomon.models.tiny import tiny_decoder, word_tokenizer


def scores(*options: str):
    return CliRunner().invoke(app, ["scores", *options], catch_exceptions=True)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("\n\n".join(prose().texts[:3]), encoding="utf-8")
    return path


@pytest.mark.e2e
def test_scores_writes_table_and_map_beside_a_control(tiny_folder, text, tmp_path):
    out = tmp_path / "out"
    done = scores(
        "--model", str(tiny_folder), "--text", str(text), "--out", str(out), "--length", "24", "--prompts", "4"
    )
    assert done.exit_code == 0, done.output
    assert "36 heads, 4 prompts of 24 tokens, attention pattern rebuilt to" in done.output
    assert "random-init copy:" in done.output
    table = pd.read_csv(out / "heads.csv")
    assert table["arm"].value_counts().to_dict() == {"treatment": 36, "random-init": 36}
    assert (out / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert "random-init" in (out / "heads.svg").read_text(encoding="utf-8")


def test_missing_text_is_one_clear_error(tiny_folder, tmp_path):
    failed = scores("--model", str(tiny_folder), "--text", str(tmp_path / "no.txt"))
    assert isinstance(failed.exception, FileNotFoundError)
    assert "no.txt" in str(failed.exception)


def test_text_that_is_too_short_says_what_is_missing(tiny_folder, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("only five words are here", encoding="utf-8")
    failed = scores("--model", str(tiny_folder), "--text", str(path))
    assert isinstance(failed.exception, ValueError)
    assert "the text holds 0 prompts of 128 tokens, at least one prompt needed" in str(failed.exception)


def test_model_without_rotation_is_refused(text, tmp_path):
    words = sorted({word for document in prose().texts for word in document.split()})
    tokenizer = word_tokenizer(words)
    tiny_decoder("gpt2", vocab=len(tokenizer)).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    failed = scores("--model", str(tmp_path / "gpt2"), "--text", str(text), "--length", "24")
    assert isinstance(failed.exception, ValueError)
    assert "GPT2LMHeadModel has no rotary embedding" in str(failed.exception)
