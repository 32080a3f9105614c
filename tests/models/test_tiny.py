import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gnomon.models.tiny import FAMILIES, tiny_decoder, word_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_runs_saves_and_loads(family, tmp_path):
    model = tiny_decoder(family, seed=3)
    ids = torch.arange(3, 40).reshape(1, -1)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    with torch.no_grad():
        logits = model(ids).logits
        assert logits.shape == (1, 37, 64)
        assert torch.equal(again(ids).logits, logits)
    assert not model.training


@pytest.mark.parametrize(
    ("family", "trait"),
    [
        ("llama", lambda model: model.config.num_key_value_heads < model.config.num_attention_heads),
        ("smollm", lambda model: model.lm_head.weight is model.model.embed_tokens.weight),
        ("llama3", lambda model: model.config.rope_parameters["rope_type"] == "llama3"),
        ("gpt2", lambda model: model.transformer.wpe.weight.shape[0] == 128),
        ("gptj", lambda model: 0 < model.config.rotary_dim < 8),
        ("gpt-neox", lambda model: model.gpt_neox.rotary_emb.inv_freq.shape == (1,)),  # a quarter of 8 channels
        ("phi", lambda model: model.model.rotary_emb.inv_freq.shape == (2,)),  # a half of 8 channels
        ("mistral", lambda model: model.config.sliding_window == 16),
        ("qwen2", lambda model: model.model.layers[0].self_attn.q_proj.bias is not None),
        ("qwen3", lambda model: model.model.layers[0].self_attn.q_norm.weight.shape == (8,)),
        ("gemma2", lambda model: model.config.attn_logit_softcapping == 50.0),
        ("gemma3", lambda model: set(model.config.layer_types) == {"sliding_attention", "full_attention"}),
        ("olmo2", lambda model: model.model.layers[0].self_attn.q_norm.weight.shape == (32,)),
    ],
)
def test_a_family_has_its_trait(family, trait):
    assert trait(tiny_decoder(family))


def test_the_seed_decides_the_weights_and_the_global_generator_is_untouched():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, same, other = tiny_decoder(seed=1), tiny_decoder(seed=1), tiny_decoder(seed=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_bad_shapes_and_names_are_refused():
    with pytest.raises(ValueError, match=r"unknown family 'lama'; nearest is 'llama'; known: llama, smollm"):
        tiny_decoder("lama")
    with pytest.raises(ValueError, match="width 30, heads 4 and kv_heads 2 must divide each other in that order"):
        tiny_decoder(width=30)


def test_underscores_count_as_hyphens():
    assert type(tiny_decoder("gpt_neox")).__name__ == "GPTNeoXForCausalLM"


def test_word_tokenizer_round_trip(tmp_path):
    word_tokenizer(["sun", "dial"]).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("dial sun moon")["input_ids"] == [4, 3, 0]
    assert tokenizer.decode([4, 3]) == "dial sun"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


@pytest.mark.parametrize("words", [["a", "a"], ["a b"], ["</s>"]])
def test_word_tokenizer_refuses_ambiguous_words(words):
    with pytest.raises(ValueError, match="words must be distinct and free of white space"):
        word_tokenizer(words)
