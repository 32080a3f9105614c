"""GGUF files, unpacked once into a folder of safetensors.

llama.cpp's GGUF stores a model in one file, usually with quantised weights. Unpacking takes longer than loading, so it
is done once: under a file lock (two processes may want the same model), into a draft folder that is renamed when it is
complete (a killed conversion leaves nothing behind that looks finished), with the hash of the weights in a manifest
(an edited or truncated copy is unpacked again).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import struct
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from gnomon.models.cache import file_sha256

MANIFEST = "gnomon.json"
LAYOUT = 1  # raised when unpacking changes, so that copies made by older versions are made again

logger = logging.getLogger(__name__)

# Types of metadata values in the GGUF format: those of fixed size with their struct format, and the other two.
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LONGEST_STRING = 2**24  # bytes; a damaged length must not ask for all the memory there is

_LOCK_TIMEOUT = 900.0  # seconds; longer than any conversion, so that a dead lock ends in a message


def is_intact(folder: Path) -> bool:
    """Whether the folder is a finished conversion of this layout whose weights have the hash of its manifest."""
    try:
        manifest = read_manifest(folder)
        return manifest["layout"] == LAYOUT and manifest["sha256"] == file_sha256(folder / "model.safetensors")
    except (OSError, ValueError, KeyError):
        return False


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a conversion noted about itself: source, quantization, sha256 of the GGUF file and of the weights."""
    return json.loads((folder / MANIFEST).read_text())


def convert_gguf(file: Path, folder: Path, *, source: str) -> Path:
    """Unpack a GGUF file into ``folder`` as float32 safetensors with config and tokenizer; returns the folder.

    If another process is doing so, waits for it and takes its result.

    Raises:
        ValueError: If it is not a GGUF file, or its architecture or quantisation is not supported.
        TimeoutError: If another process holds the lock for 15 minutes.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f"{folder.name}.lock")
    try:
        with filelock.FileLock(lock, timeout=_LOCK_TIMEOUT):
            if is_intact(folder):
                return folder
            draft = folder.with_name(f".{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)  # what a killed conversion left
            draft.mkdir()
            try:
                _unpack(file, draft, source)
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(draft, folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except filelock.Timeout as error:
        raise TimeoutError(f"another process has been converting {file.name} for 15 minutes; remove {lock}") from error
    return folder


def _unpack(file: Path, draft: Path, source: str) -> None:
    # Heavy imports stay here: naming a model must not load torch.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gnomon.models.quiet import quiet_transformers

    header = read_header(file)
    architecture = header.get("general.architecture", "unknown")
    quantization = _quantization(header)
    logger.info("unpacking %s once (%s, about half a minute)", file.name, quantization)
    with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):  # its progress bar has no switch
        try:
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            packed = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        except (ValueError, KeyError, NotImplementedError, RuntimeError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"{file.name} is an unsupported GGUF file (architecture {architecture}, {quantization}): {reason}"
            ) from error
        _set_pre_tokenizer(tokenizer, header.get("tokenizer.ggml.pre", "default"))
        _plain_model(packed).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    manifest = {
        "layout": LAYOUT,
        "source": source,
        "quantization": quantization,
        "gguf_sha256": file_sha256(file),
        "sha256": file_sha256(draft / "model.safetensors"),
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))


def read_header(file: Path) -> dict[str, Any]:
    """The metadata of a GGUF file, without its arrays (vocabulary, merges).

    The ``gguf`` package builds an array view for each of a hundred thousand strings, which takes three seconds of the
    conversion; this walks over them.

    Raises:
        ValueError: If the file is truncated or not GGUF version 2 or 3.
    """
    try:
        with file.open("rb") as stream:
            magic, version, _tensors, entries = struct.unpack("<4sIQQ", stream.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"starts with {magic!r}, version {version}")
            pairs = [(_read_value(stream, _STRING), _read_value(stream)) for _ in range(entries)]
    except (struct.error, ValueError, KeyError) as error:
        raise ValueError(f"{file} is truncated or not a GGUF file ({error})") from error
    return {key: value for key, value in pairs if value is not None}


def _read_value(stream: BinaryIO, kind: int | None = None) -> Any:
    """One value, preceded by its type unless given; ``None`` for an array, which is skipped."""
    if kind is None:
        (kind,) = struct.unpack("<I", stream.read(4))
    if kind == _STRING:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > _LONGEST_STRING:
            raise ValueError(f"a string of {length} bytes")
        return struct.unpack(f"{length}s", stream.read(length))[0].decode()
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", stream.read(12))
        if inner in _SCALARS:
            stream.seek(struct.calcsize(_SCALARS[inner]) * count, os.SEEK_CUR)
        else:
            for _ in range(count):
                _read_value(stream, inner)
        return None
    form = _SCALARS[kind]
    return struct.unpack(form, stream.read(struct.calcsize(form)))[0]


def _quantization(header: dict[str, Any]) -> str:
    from gguf import LlamaFileType

    kind = LlamaFileType(header.get("general.file_type", LlamaFileType.GUESSED.value))
    return kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _set_pre_tokenizer(tokenizer: Any, kind: str) -> None:
    """Split digits off first, as SmolLM's merges were learned; transformers sets ``ByteLevel`` alone."""
    from tokenizers import pre_tokenizers

    if kind == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def _plain_model(packed: Any) -> Any:
    """The same weights in a model that does not remember having been quantised (such models refuse to be saved)."""
    import torch

    settings = packed.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(packed.config).from_dict(settings)
    config.architectures = [type(packed).__name__]
    with torch.device("meta"):
        plain = type(packed)(config)
    plain.load_state_dict(packed.state_dict(), assign=True)
    plain.tie_weights()
    return plain
