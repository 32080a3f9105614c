"""Randomised copies of a model: controls that share its architecture, tokenizer and some of its statistics.

==========================  =======================================================================================
scheme                      what is kept, and so what an effect that survives it cannot need
==========================  =======================================================================================
random-init                 the architecture: weights drawn anew by the model's own initialisation
resampled                   mean and standard deviation of each parameter tensor
resampled-keep-embeddings   the same, and the trained token and position embeddings and unembedding
permuted-weights            the exact values of each matrix, in a random order; vectors stay
spectrum-matched            the singular values of each matrix, with random singular vectors; vectors stay
shuffled-layers             every block, in another order
noise-embeddings            every weight; each token's embedding is replaced by fresh noise when the model runs
==========================  =======================================================================================

They act on the plain Hugging Face model; a bridge is built on the result. On deep Llama-type models ``random-init``
collapses activations (all positions share the context's mean), so that ``resampled`` belongs beside it.

Source: ``resampled``, ``resampled-keep-embeddings`` and ``noise-embeddings`` follow Heap et al. (2025), "Automated
Interpretability Metrics Do Not Distinguish Trained and Random Transformers" (there: re-randomised including or
excluding embeddings, and control).
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from gnomon.names import nearest

logger = logging.getLogger(__name__)

Scheme = Callable[[PreTrainedModel, torch.Generator], None]

#: Schemes by name: each changes the model it gets, a private copy, in place.
SCHEMES: dict[str, Scheme] = {}


def randomize(model: PreTrainedModel, scheme: str, seed: int) -> PreTrainedModel:
    """A randomised deep copy of a plain Hugging Face model; the original is untouched and ties are kept.

    Args:
        model: The trained model (not a bridge).
        scheme: A name of :data:`SCHEMES`.
        seed: The same seed gives the same copy; the global generators are left as they were.

    Raises:
        ValueError: If there is no such scheme, or the model is a bridge or has too few layers to shuffle.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}{nearest(scheme, SCHEMES)}; known: {', '.join(SCHEMES)}")
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"randomize needs the plain Hugging Face model, got {type(model).__name__}; build bridges last"
        )
    twin = copy.deepcopy(model)
    with torch.no_grad():
        SCHEMES[scheme](twin, torch.Generator().manual_seed(seed))
    if logger.isEnabledFor(logging.INFO):
        before, after = weight_statistics(model)["std"].mean(), weight_statistics(twin)["std"].mean()
        logger.info("%s (seed %d): mean standard deviation of a tensor %.4g -> %.4g", scheme, seed, before, after)
    return twin.eval()


def weight_statistics(model: nn.Module) -> pd.DataFrame:
    """One row a parameter tensor: ``tensor``, ``shape``, ``mean``, ``std`` (population), ``norm``; tied ones once."""
    rows = []
    for name, weight in model.named_parameters():
        values = weight.detach().double()
        rows.append(
            {
                "tensor": name,
                "shape": "x".join(map(str, weight.shape)),
                "mean": values.mean().item(),
                "std": values.std(correction=0).item(),
                "norm": values.norm().item(),
            }
        )
    return pd.DataFrame(rows)


def state_hash(model: nn.Module) -> str:
    """SHA-256 over names, shapes and bits of all parameters and buffers: equal iff the weights are identical."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def register_scheme(name: str) -> Callable[[Scheme], Scheme]:
    """Add a scheme under a name; it changes the private copy it is given in place."""

    def register(scheme: Scheme) -> Scheme:
        SCHEMES[name] = scheme
        return scheme

    return register


@register_scheme("random-init")
def _random_init(model: PreTrainedModel, generator: torch.Generator) -> None:
    seed = int(torch.randint(2**31, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)._from_config(copy.deepcopy(model.config), dtype=model.dtype)
    # Parameters only: buffers (inverse frequencies, masks) follow from the config and are already right.
    source = dict(fresh.named_parameters())
    for name, weight in model.named_parameters():
        weight.copy_(source[name])


@register_scheme("resampled")
def _resampled(model: PreTrainedModel, generator: torch.Generator) -> None:
    for weight in model.parameters():
        _resample(weight, generator)


@register_scheme("resampled-keep-embeddings")
def _resampled_keep_embeddings(model: PreTrainedModel, generator: torch.Generator) -> None:
    kept = {id(weight) for module in _embeddings(model) for weight in module.parameters()}
    for weight in model.parameters():
        if id(weight) not in kept:
            _resample(weight, generator)


@register_scheme("permuted-weights")
def _permuted_weights(model: PreTrainedModel, generator: torch.Generator) -> None:
    for weight in _matrices(model):
        order = torch.randperm(weight.numel(), generator=generator)
        weight.copy_(weight.flatten()[order.to(weight.device)].view_as(weight))


@register_scheme("spectrum-matched")
def _spectrum_matched(model: PreTrainedModel, generator: torch.Generator) -> None:
    for weight in _matrices(model):
        weight.copy_(_same_spectrum(weight.flatten(1), generator).view_as(weight))


@register_scheme("shuffled-layers")
def _shuffled_layers(model: PreTrainedModel, generator: torch.Generator) -> None:
    layers = _layers(model)
    identity = torch.arange(len(layers))
    order = identity
    while torch.equal(order, identity):
        order = torch.randperm(len(layers), generator=generator)
    # Weights move, modules stay: cache index and attention type (sliding or full) belong to the place.
    states = [{name: tensor.clone() for name, tensor in layer.state_dict().items()} for layer in layers]
    for layer, source in zip(layers, order.tolist(), strict=True):
        layer.load_state_dict(states[source])


@register_scheme("noise-embeddings")
def _noise_embeddings(model: PreTrainedModel, generator: torch.Generator) -> None:
    seed = int(torch.randint(2**31, (), generator=generator))
    model.get_input_embeddings().register_forward_hook(_EmbeddingNoise(seed))


class _EmbeddingNoise:
    """Forward hook: Gaussian noise in place of embeddings, with their root mean square over the sequence.

    Fresh for every occurrence of a token and independent of token and position, yet reproducible: the noise of a
    sequence is drawn from a seed and its ids, so that training, evaluation and a second pass all see the same.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, _module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        noise = torch.empty(output.shape, dtype=torch.float32)
        for row, ids in enumerate(inputs[0].cpu()):
            digest = hashlib.sha256(f"{self.seed}:{ids.tolist()}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            noise[row] = torch.randn(output.shape[1:], generator=generator)
        scale = output.float().pow(2).mean(dim=tuple(range(1, output.ndim)), keepdim=True).sqrt()
        return (noise.to(output.device) * scale).to(output.dtype)


def _resample(weight: Tensor, generator: torch.Generator) -> None:
    """Replace entries by independent draws of the Gaussian with their mean and population standard deviation."""
    values = weight.detach().double()
    noise = torch.randn(weight.shape, generator=generator).to(weight.device)
    weight.copy_(noise * values.std(correction=0) + values.mean())


def _same_spectrum(matrix: Tensor, generator: torch.Generator) -> Tensor:
    r"""A matrix with the same singular values and Haar-distributed singular vectors.

    With :math:`W = QR`, the triangle :math:`R` has the singular values of :math:`W`, and :math:`F R H` has the law of
    :math:`U' \operatorname{diag}(\sigma) V'^{\mathsf T}` for a random frame :math:`F` (m x n) and rotation :math:`H`
    (n x n): no singular value decomposition is needed.
    """
    if matrix.shape[0] < matrix.shape[1]:
        return _same_spectrum(matrix.T, generator).T
    rows, columns = matrix.shape
    triangle = torch.linalg.qr(matrix.double().cpu(), mode="r").R
    frame, rotation = _random_frame(rows, columns, generator), _random_frame(columns, columns, generator)
    return (frame @ triangle @ rotation).to(matrix)


def _random_frame(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns, uniform over all such frames: QR of a Gaussian, with the signs of R moved into Q."""
    frame, triangle = torch.linalg.qr(torch.randn(rows, columns, generator=generator, dtype=torch.float64))
    return frame * triangle.diagonal().sign()


def _matrices(model: PreTrainedModel) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.ndim >= 2]


def _embeddings(model: PreTrainedModel) -> list[nn.Module]:
    """Token and position embeddings and the unembedding."""
    found: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    head = model.get_output_embeddings()
    return found if head is None else [*found, head]


def _layers(model: PreTrainedModel) -> nn.ModuleList:
    """The blocks of the decoder: its longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists or max(map(len, lists)) < 2:
        raise ValueError(f"{type(model).__name__} has fewer than two layers to shuffle")
    return max(lists, key=len)
