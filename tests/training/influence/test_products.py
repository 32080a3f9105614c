"""Inner products: four exact ways agree with a closed form and with each other; the sketch is close."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gnomon.models.tiny import tiny_decoder
from gnomon.training.influence import model_losses, per_example_dots
from gnomon.training.influence.products import mean_gradient

EXACT = ("jvp", "double-vjp", "ghost", "vmap")


@pytest.mark.parametrize("method", EXACT)
def test_linear_regression_has_a_closed_form(method, squared):
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    inputs, targets = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    direction = {"weight": torch.randn(1, 4, dtype=torch.float64), "bias": torch.randn(1, dtype=torch.float64)}
    residual = model(inputs).squeeze(-1).detach() - targets
    expected = 2 * residual * (inputs @ direction["weight"][0] + direction["bias"])
    products, losses, _ = per_example_dots(model, squared, (inputs, targets), [direction], method)
    torch.testing.assert_close(products[:, 0], expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(losses, residual**2)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt-neox", "gemma2"])
@pytest.mark.parametrize("method", ["jvp", "double-vjp", "ghost"])
def test_methods_agree_on_a_decoder_with_padding(family, method):
    model = tiny_decoder(family, vocab=17, width=16, layers=1, heads=2, kv_heads=1, mlp_width=16).double()
    torch.manual_seed(1)
    ids = torch.randint(3, 17, (5, 7))
    labels = ids.clone()
    labels[:, :2] = -100
    labels[1, 5:] = -100
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    parameters = dict(model.named_parameters())
    directions = [{name: torch.randn_like(value) for name, value in parameters.items()} for _ in range(2)]
    rows = []
    for index in range(5):
        one = {name: value[index : index + 1] for name, value in batch.items()}
        gradient, _ = mean_gradient(model, model_losses, one, parameters)
        rows.append([sum((gradient[k] * d[k]).sum() for k in d) for d in directions])
    products, _, _ = per_example_dots(model, model_losses, batch, directions, method)
    # The normalisation and logits of these models are computed in float32.
    torch.testing.assert_close(products, torch.tensor(rows, dtype=torch.float64), rtol=1e-4, atol=1e-5)


def test_sketched_products_are_close_and_unbiased(task, losses):
    net = task.net()
    direction, _ = mean_gradient(net, losses, task.query, dict(net.named_parameters()))
    batch = (task.inputs, task.labels)
    exact, _, norms = per_example_dots(net, losses, batch, [direction], "ghost")
    length = sum(value.square().sum() for value in direction.values())
    draws = torch.stack(
        [per_example_dots(net, losses, batch, [direction], "project", dimension=64, seed=s)[0] for s in range(100)]
    )
    error = ((norms * length + exact[:, 0] ** 2) / 64).sqrt()
    assert ((draws.mean(0) - exact)[:, 0].abs() < 4.5 * error / 10).all()


def test_query_gradient_does_not_depend_on_the_pieces(task, losses):
    net = task.net()
    parameters = dict(net.named_parameters())
    whole, loss = mean_gradient(net, losses, task.query, parameters)
    parts, loss_of_parts = mean_gradient(net, losses, task.query, parameters, chunk=7)
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name])
    assert loss == pytest.approx(loss_of_parts)
    assert loss == pytest.approx(float(losses(net, task.query).mean().detach()))


def test_classifier_and_decoder_losses():
    class Classifier(nn.Module):
        def forward(self, pixels):
            return type("Output", (), {"logits": pixels})

    pixels, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    found = model_losses(Classifier(), {"pixels": pixels, "labels": labels})
    torch.testing.assert_close(found, -pixels.log_softmax(1)[torch.arange(4), labels])
    with pytest.raises(ValueError, match="mapping with 'labels'"):
        model_losses(Classifier(), (pixels, labels))
    decoder = tiny_decoder("llama", vocab=9)
    ids = torch.tensor([[3, 4, 5], [6, 7, 8]])
    with pytest.raises(ValueError, match="example 1 of the batch has no labelled token"):
        model_losses(decoder, {"input_ids": ids, "labels": torch.tensor([[-100, 4, 5], [6, -100, -100]])})
