import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from gnomon.models.load import bridge, encode, encode_batch, load, start_token, weights_id
from gnomon.models.tiny import tiny_decoder, word_tokenizer


def copy_of(folder, target):
    return shutil.copytree(folder, target / "model")


def test_a_folder_loads_with_its_provenance(tiny_folder):
    loaded = load(tiny_folder)
    facts = json.loads(json.dumps(loaded.provenance.to_dict()))
    assert facts == {
        "name": str(tiny_folder),
        "source": f"folder {tiny_folder}",
        "architecture": "LlamaForCausalLM",
        "parameters": sum(weight.numel() for weight in tiny_decoder().parameters()),
        "quantization": "none",
        "weights_sha256": facts["weights_sha256"],
        "dtype": "float32",
        "attention": "eager",
        "bos_policy": "eos",
        "start_id": 2,
        "context": 128,
    }
    assert facts["weights_sha256"].startswith(weights_id(tiny_folder))
    assert not loaded.model.training
    assert torch.equal(loaded.model.lm_head.weight, tiny_decoder().lm_head.weight)


def test_two_models_are_kept_and_a_changed_file_is_read_again(tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    first = load(folder)
    assert load(folder) is first
    assert load(folder, dtype="bfloat16") is not first
    assert load(folder) is first
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] += 1.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    changed = load(folder)
    assert changed is not first
    assert changed.provenance.weights_sha256 != first.provenance.weights_sha256


def test_bfloat16_weights_are_bfloat16(tiny_folder):
    loaded = load(tiny_folder, dtype=torch.bfloat16)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.provenance.dtype == "bfloat16"


def test_sharded_weights_load_and_hash_differently_when_a_shard_changes(tmp_path):
    model = tiny_decoder()
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    word_tokenizer(["a"]).save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert torch.equal(load(tmp_path).model.lm_head.weight, model.lm_head.weight)
    before = weights_id(tmp_path)
    weights = load_file(shards[0])
    save_file({name: value + 1 for name, value in weights.items()}, shards[0], metadata={"format": "pt"})
    assert weights_id(tmp_path) != before
    shards[1].unlink()
    with pytest.raises(FileNotFoundError, match=rf"lacks 1 of {len(shards)} weight files: {shards[1].name}"):
        load(tmp_path)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "qwen2", "qwen3", "gemma3", "mistral", "phi"])
def test_the_bridge_gives_the_logits_of_the_plain_model(family, tiny):
    model = tiny_decoder(family)
    ids = torch.randint(3, 64, (2, 40), generator=torch.Generator().manual_seed(0))  # longer than sliding windows
    names = list(model.state_dict())
    wrapped = bridge(dataclasses.replace(tiny, model=model))
    with torch.no_grad():
        assert torch.allclose(wrapped(ids), model(ids).logits, rtol=0, atol=5e-7)  # float32 rounding of other kernels
    assert list(model.state_dict()) == names  # the bridge renames those of its copy only
    assert "blocks.0.attn.hook_pattern" in wrapped.hook_dict


def test_the_bridge_follows_the_bos_policy(tiny):
    wrapped = bridge(tiny)
    assert wrapped.to_tokens("w1 w2").tolist() == [encode(tiny, "w1 w2")]


def test_an_architecture_without_bridge_is_named(tiny):
    class HouseBrewForCausalLM(type(tiny.model)):
        pass

    model = tiny_decoder()
    model.__class__ = HouseBrewForCausalLM
    with pytest.raises(ValueError, match="TransformerLens has no bridge for HouseBrewForCausalLM"):
        bridge(dataclasses.replace(tiny, model=model))


def test_texts_start_with_the_start_token(tiny):
    assert encode(tiny, "w1 w0") == [2, 4, 3]
    assert encode(tiny, "w1 w0 w5", max_tokens=2) == [2, 4]
    assert encode_batch(tiny, ["w0", "w1 w1"]) == [[2, 3], [2, 4, 4]]
    assert encode_batch(tiny, []) == []


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({}, ("eos", 2)),
        ({"adds_bos": True}, ("bos", 1)),
        ({"eos_token": None}, ("none", None)),
    ],
)
def test_bos_policy(changes, policy):
    tokenizer = word_tokenizer(["a"])
    if changes.pop("adds_bos", False):
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    assert start_token(tokenizer) == policy


def test_prompts_must_fit(tiny):
    with pytest.raises(ValueError, match=r"^prompt 0 is empty: give at least one token of text$"):
        encode(tiny, "")
    with pytest.raises(ValueError, match=r"^prompt 1 is empty: give at least one token of text$"):
        encode_batch(tiny, ["w1", "  "])
    with pytest.raises(ValueError, match=r"^prompt 0 has 129 tokens, the context of .* has 128; shorten it or set max"):
        encode(tiny, "w1 " * 128)
    assert len(encode(tiny, "w1 " * 127)) == 128


def test_unknown_names_get_suggestions(tiny_folder):
    with pytest.raises(
        ValueError, match=r"^unknown model 'smolm2'; did you mean smollm2\?; a model is smollm2, a hub id"
    ):
        load("smolm2")
    with pytest.raises(FileNotFoundError, match=r"^no model folder .*tiny-lama; did you mean tiny-llama\?$"):
        load(tiny_folder.with_name("tiny-lama"))
    with pytest.raises(ValueError, match=r"config.json is a single file; gnomon loads folders"):
        load(tiny_folder / "config.json")
    with pytest.raises(ValueError, match=r"^unknown dtype 'int3'; use float32, bfloat16, float16 or float64$"):
        load(tiny_folder, dtype="int3")  # pyright: ignore[reportArgumentType]


def test_incomplete_folders_are_named(tiny_folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no config.json: not a model folder"):
        load(empty)
    folder = copy_of(tiny_folder, tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer \(tokenizer.json\)"):
        load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no weights \(model.safetensors\)"):
        load(folder)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"has only pickled weights \(pytorch_model.bin\), which can run code when read"
    ):
        load(folder)


@pytest.mark.parametrize("kept", [0, 7, 3000, -1])
def test_truncated_weights_are_refused(kept, tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"^{file} is truncated or not a safetensors file \("):
        load(folder)


def test_missing_weights_are_not_filled_with_random_numbers(tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights of LlamaForCausalLM \(1\): model.layers.1.mlp.up_proj.weight"):
        load(folder)


def test_code_that_comes_with_a_model_is_not_run(tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    marker = tmp_path / "ran"
    (folder / "trap.py").write_text(f"open({str(marker)!r}, 'w')\nclass Trap: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "trap", "auto_map": {"AutoConfig": "trap.Trap", "AutoModelForCausalLM": "trap.Trap"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"cannot be (loaded|read)"):
        load(folder)
    assert not marker.exists()


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read(tiny_folder, tmp_path):
    folder = copy_of(tiny_folder, tmp_path)
    shape = [2**20, 2**18]  # 2^38 numbers: a terabyte in float32, as a sparse file
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 2**40]}}).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + 2**40)
    with pytest.raises(
        ValueError, match=r'needs about 1099.5 GB of memory in float32 .* set dtype="bfloat16" or choose'
    ):
        load(folder)
    with pytest.raises(ValueError, match=r"needs about 549.8 GB of memory in bfloat16 .*; choose a smaller model$"):
        load(folder, dtype="bfloat16")


@pytest.mark.model
def test_smollm2_is_what_its_gguf_file_holds():
    from gguf import GGUFReader
    from gguf.quants import dequantize

    from gnomon.models.checkpoint import SMOLLM2_WHEEL, _wheel_file

    loaded = load("smollm2")
    assert loaded.provenance.architecture == "LlamaForCausalLM"
    assert loaded.provenance.parameters == 134_515_008
    assert (loaded.provenance.bos_policy, loaded.provenance.start_id) == ("eos", 2)
    assert loaded.provenance.quantization == "Q4_1"
    file = _wheel_file(SMOLLM2_WHEEL, ".gguf")
    assert file is not None
    tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    weights = dict(loaded.model.named_parameters())
    for theirs, ours in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ]:
        tensor = tensors[theirs]
        values = torch.tensor(dequantize(tensor.data, tensor.tensor_type)).reshape(weights[ours].shape)
        assert torch.equal(weights[ours].detach(), values)


@pytest.mark.model
def test_smollm2_splits_numbers_into_digits():
    tokenizer = load("smollm2").tokenizer
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("in 2024:  7", add_special_tokens=False)["input_ids"])
    assert pieces == ["in", "Ġ", "2", "0", "2", "4", ":", "ĠĠ", "7"]


@pytest.mark.model
def test_smollm2_bridge_agrees_with_the_plain_model():
    loaded = load("smollm2")
    ids = torch.tensor([encode(loaded, "The capital of France is")])
    with torch.no_grad():
        logits = loaded.model(ids).logits
        assert torch.allclose(bridge(loaded)(ids), logits, rtol=0, atol=2e-4)
    assert loaded.tokenizer.decode(logits[0, -1].argmax()) == " Paris"


def test_a_saved_and_reloaded_tokenizer_is_the_same(tiny_folder, tiny):
    text = "w3 one A unknown"
    again = AutoTokenizer.from_pretrained(tiny_folder)
    assert again(text)["input_ids"] == tiny.tokenizer(text)["input_ids"]
