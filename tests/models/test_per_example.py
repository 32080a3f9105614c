"""Per-example gradients in factors against ``vmap(grad)``: products, ties, broadcasting, what cannot be done."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gnomon.models.gradient_factors import OuterProducts
from gnomon.models.per_example import (
    check_complete,
    example_losses,
    materialised_gradients,
    per_example_gradients,
)
from gnomon.models.sketch import CountSketch
from gnomon.models.tiny import tiny_decoder


def cross_entropy(model, batch):
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def token_loss(model, batch):
    logits = model(batch["input_ids"]).logits[:, :-1]
    losses = F.cross_entropy(logits.flatten(0, 1), batch["input_ids"][:, 1:].flatten(), reduction="none")
    return losses.view(len(logits), -1).mean(1)


def perceptron():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.ReLU(inplace=True), nn.Linear(7, 3)).double()
    return net, (torch.randn(6, 5, dtype=torch.float64), torch.randint(3, (6,)))


def convolution():
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).double()
    return net, (torch.randn(5, 1, 8, 8, dtype=torch.float64), torch.randint(3, (5,)))


def decoder(family, **overrides):
    model = tiny_decoder(family, vocab=13, width=8, layers=1, heads=2, kv_heads=1, mlp_width=8, **overrides).double()
    torch.manual_seed(2)
    return model, {"input_ids": torch.randint(3, 13, (4, 6))}


CASES = {
    "perceptron": lambda: (*perceptron(), cross_entropy),
    "convolution": lambda: (*convolution(), cross_entropy),
    "llama": lambda: (*decoder("llama"), token_loss),
    "tied smollm": lambda: (*decoder("smollm"), token_loss),
    "tied gpt2 with Conv1D and one row of positions": lambda: (*decoder("gpt2"), token_loss),
    "gemma2 with its own norms": lambda: (*decoder("gemma2"), token_loss),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    model, batch, loss_fn = request.param()
    # The oracle takes one example at a time: vmap cannot pass the branches of a Hugging Face model.
    rows = []
    for index in range(len(batch[0] if isinstance(batch, tuple) else batch["input_ids"])):
        one = (
            tuple(tensor[index : index + 1] for tensor in batch)
            if isinstance(batch, tuple)
            else {name: tensor[index : index + 1] for name, tensor in batch.items()}
        )
        names, parameters = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss_fn(model, one).sum(), parameters)
        rows.append(dict(zip(names, gradients, strict=True)))
    written = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return model, batch, loss_fn, written


def flat(written):
    return torch.cat([value.flatten(1) for value in written.values()], dim=1)


def test_products_equal_those_of_written_out_gradients(case):
    model, batch, loss_fn, written = case
    gradients = per_example_gradients(model, loss_fn, batch)
    matrix = flat(written)
    torch.testing.assert_close(gradients.gram(), matrix @ matrix.T, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradients.squared_norms(), matrix.square().sum(1), rtol=1e-9, atol=1e-12)
    direction = {name: torch.randn_like(value[0]) for name, value in written.items()}
    expected = sum((written[name] * direction[name]).flatten(1).sum(1) for name in written)
    torch.testing.assert_close(gradients.dot(direction), expected, rtol=1e-9, atol=1e-12)


def test_sums_have_the_shape_of_the_parameters(case):
    model, batch, loss_fn, written = case
    gradients = per_example_gradients(model, loss_fn, batch)
    for name, value in gradients.sum().items():
        torch.testing.assert_close(value, written[name].sum(0), rtol=1e-9, atol=1e-12)
    for name, value in gradients.sum_of_squares().items():
        torch.testing.assert_close(value, written[name].square().sum(0), rtol=1e-9, atol=1e-12)
    check_complete(model, loss_fn, batch, gradients)


def test_gradients_of_the_model_are_left_alone(case):
    model, batch, loss_fn, _ = case
    per_example_gradients(model, loss_fn, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_vmap_oracle_agrees():
    model, batch = perceptron()
    matrix = flat(materialised_gradients(model, cross_entropy, batch))
    torch.testing.assert_close(per_example_gradients(model, cross_entropy, batch).gram(), matrix @ matrix.T)


def test_gram_with_another_batch():
    model, (inputs, labels) = perceptron()
    matrix = flat(materialised_gradients(model, cross_entropy, (inputs, labels)))
    first = per_example_gradients(model, cross_entropy, (inputs[:2], labels[:2]))
    last = per_example_gradients(model, cross_entropy, (inputs[2:], labels[2:]))
    torch.testing.assert_close(first.gram(last), matrix[:2] @ matrix[2:].T)


def test_a_layer_used_twice_sums_its_uses():
    torch.manual_seed(3)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.out(torch.tanh(self.inner(torch.tanh(self.inner(x)))))

    model = Twice().double()
    batch = (torch.randn(5, 4, dtype=torch.float64), torch.randint(2, (5,)))
    matrix = flat(materialised_gradients(model, cross_entropy, batch))
    gradients = per_example_gradients(model, cross_entropy, batch)
    assert len(gradients.uses["inner.weight"]) == 2
    torch.testing.assert_close(gradients.gram(), matrix @ matrix.T)
    torch.testing.assert_close(gradients.squared_norms(), (matrix**2).sum(1))


def test_padding_tokens_have_no_gradient():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Embedding(6, 3, padding_idx=0), nn.Flatten(), nn.Linear(12, 2)).double()
    batch = (torch.tensor([[1, 2, 0, 0], [3, 3, 1, 0]]), torch.tensor([0, 1]))
    gradients = per_example_gradients(model, cross_entropy, batch)
    check_complete(model, cross_entropy, batch, gradients)
    assert gradients.sum()["0.weight"][0].abs().max() == 0


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_gram_does_not_depend_on_how_it_is_formed(examples, positions, rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randint(rows, (examples, positions), generator=generator)
    right = torch.randn(examples, positions, columns, generator=generator, dtype=torch.float64)
    indexed = OuterProducts(left, right, rows)
    written = OuterProducts(F.one_hot(left, rows).double(), right, rows)
    torch.testing.assert_close(indexed.dense(), written.dense())
    torch.testing.assert_close(indexed.sum(), written.sum())


def test_half_precision_is_summed_in_single():
    model, (inputs, labels) = perceptron()
    exact = per_example_gradients(model, cross_entropy, (inputs, labels)).squared_norms()
    half = per_example_gradients(model.bfloat16(), cross_entropy, (inputs.bfloat16(), labels)).squared_norms()
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), exact, rtol=0.1, atol=0.05)


def test_only_trainable_parameters_enter():
    model, batch = perceptron()
    model[0].requires_grad_(False)
    gradients = per_example_gradients(model, cross_entropy, batch, parameters=["3.weight"])
    assert set(gradients.uses) == {"3.weight"}
    with pytest.raises(ValueError, match=r"no trainable parameter '0\.weight'"):
        per_example_gradients(model, cross_entropy, batch, parameters=["0.weight"])
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="all parameters of the model are frozen"):
        per_example_gradients(model, cross_entropy, batch)


def test_reduced_loss_is_refused():
    model, batch = perceptron()
    with pytest.raises(ValueError, match="use reduction='none'"):
        example_losses(model, lambda m, b: F.cross_entropy(m(b[0]), b[1]), batch)


def test_batch_norm_in_training_mode_is_refused():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    _, batch = perceptron()
    with pytest.raises(ValueError, match=r"batch norm \(1\.weight\) in training mode mixes examples"):
        per_example_gradients(model, cross_entropy, batch)
    gradients = per_example_gradients(model.eval(), cross_entropy, batch)
    check_complete(model, cross_entropy, batch, gradients)


def test_a_weight_used_behind_the_back_of_its_layer_is_found():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 4)

        def forward(self, x):
            return self.embedding(x).sum(1) @ self.embedding.weight.T

    torch.manual_seed(5)
    model, batch = Tied().double(), (torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1]))
    gradients = per_example_gradients(model, cross_entropy, batch)
    with pytest.raises(ValueError, match=r"'embedding\.weight' do not sum to its gradient"):
        check_complete(model, cross_entropy, batch, gradients)


def test_a_parameter_its_layer_does_not_use_is_named():
    model = nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    head = nn.Sequential(model, nn.Flatten(), nn.Linear(24, 3))
    batch = (torch.randn(4, 3, 8), torch.randint(3, (4,)))
    with pytest.raises(ValueError, match="self_attn"):
        per_example_gradients(head, cross_entropy, batch)


def test_sketch_keeps_inner_products_on_average():
    model, batch = perceptron()
    gradients = per_example_gradients(model, cross_entropy, batch)
    exact = gradients.gram()
    draws = torch.stack(
        [
            (sketch := gradients.sketch(CountSketch(gradients.shapes, dimension=64, seed=seed))) @ sketch.T
            for seed in range(200)
        ]
    )
    norms = exact.diagonal()
    error = ((norms[:, None] * norms + exact**2) / 64).sqrt()
    assert ((draws.mean(0) - exact).abs() < 4 * error / 200**0.5).all()
    # Shared hashes of rows and columns cost a little over the variance of independent ones.
    assert (draws.std(0) < 1.6 * error).all()


def test_sketch_is_the_same_in_factors_and_written_out():
    for family in ("smollm", "gpt2"):
        model, batch = decoder(family)
        gradients = per_example_gradients(model, token_loss, batch)
        projection = CountSketch(gradients.shapes, dimension=32, seed=1)
        written = sum(
            projection.of_rows(name, sum(use.dense().flatten(1) for use in uses))
            for name, uses in gradients.uses.items()
        )
        torch.testing.assert_close(gradients.sketch(projection), written)
    with pytest.raises(ValueError, match="positive dimension"):
        CountSketch({}, dimension=0)
