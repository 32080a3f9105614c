"""The recorder against gradients taken by hand: steps, pools, micro-batches, optimisers, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gnomon.training.influence import FInfluence

STEPS = 12


def by_hand(net, losses, task, batch_index):
    """Inner products of examples with the query's gradient, one backward pass each."""
    parameters = list(net.parameters())

    def gradient(loss):
        return torch.cat([value.flatten() for value in torch.autograd.grad(loss, parameters)])

    query = gradient(losses(net, task.query).mean())
    rows = [gradient(losses(net, (task.inputs[i : i + 1], task.labels[i : i + 1])).sum()) for i in batch_index]
    return torch.stack(rows) @ query, torch.stack(rows)


def test_scores_are_those_of_the_definition(task, losses):
    products = []

    def watch(step, net):
        products.append(by_hand(net, losses, task, range(60))[0].numpy())

    def recorder_of(net, optimizer):
        pool = ((task.inputs, task.labels), range(60))
        return FInfluence(net, losses, query=task.query, optimizer=optimizer, pool=pool, batch_size=12)

    result = task.train(recorder_of, STEPS, watch=watch).finalize()
    x = np.array(products)
    distance = x - x.mean(1, keepdims=True)
    score = (0.3 * distance).sum(0) / np.sqrt((0.09 * x.var(1, ddof=1)).sum())
    table = result.scores
    np.testing.assert_allclose(table["mu_step"], score / STEPS**0.5 / 12**0.5, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table["mu_run"], (STEPS * 12) ** 0.5 / 60 * score / STEPS**0.5, rtol=1e-4, atol=1e-6)
    standardised = distance / x.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(table["mu_paper"], STEPS**0.5 * standardised.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table["tracin"], 0.3 * x.sum(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table["last_dot"], x[-1], rtol=1e-4, atol=1e-6)
    assert (table["n_obs"] == STEPS).all()


def test_self_mode_compares_with_the_rest_of_the_gram_matrix(task, losses):
    grams = []

    def watch(step, net):
        _, rows = by_hand(net, losses, task, range(60))
        grams.append((rows @ rows.T).numpy())

    def recorder_of(net, optimizer):
        pool = ((task.inputs, task.labels), range(60))
        return FInfluence(net, losses, target="self", optimizer=optimizer, pool=pool, batch_size=12)

    result = task.train(recorder_of, 3, watch=watch)
    with pytest.warns(UserWarning, match="observed at 3 steps"):
        result = result.finalize()
    rates = np.zeros(60)
    for example in range(60):
        others = np.delete(np.arange(60), example)
        shift = sum(0.3 * (g[example, example] - g[example, others].mean()) for g in grams)
        noise = sum(0.09 * g[example, others].var(ddof=1) for g in grams)
        rates[example] = shift / np.sqrt(3 * noise)
    np.testing.assert_allclose(result.rates, rates, rtol=1e-4)
    diagonals = np.array([gram.diagonal() for gram in grams])
    np.testing.assert_allclose(result.scores["tracin"], 0.3 * diagonals.sum(0), rtol=1e-4)


@pytest.mark.parametrize("method", ["ghost", "vmap"])
@pytest.mark.filterwarnings("ignore:examples were observed")
def test_self_mode_does_not_depend_on_the_method_or_the_pieces(task, losses, method):
    def rates(method, chunk):
        net = task.net()
        recorder = FInfluence(net, losses, target="self", method=method, chunk=chunk, reference=20, seed=4)
        recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
        return recorder.finalize().rates

    np.testing.assert_allclose(rates(method, 13), rates("ghost", 256), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:examples were observed")
def test_sketches_give_nearly_the_same_self_influence(task, losses):
    def rates(**options):
        recorder = FInfluence(task.net(), losses, target="self", **options)
        recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
        return recorder.finalize().rates

    assert np.corrcoef(rates(method="project", dimension=4096), rates())[0, 1] > 0.98


@pytest.mark.filterwarnings("ignore:examples were observed")
def test_shuffled_batches_are_scored_by_id(task, losses):
    def recorder_of(net, optimizer):
        return FInfluence(net, losses, query=task.query, optimizer=optimizer, n_train=60)

    recorder = task.train(recorder_of, STEPS)
    table = recorder.finalize().scores.set_index("index")
    counts = np.bincount(torch.cat(task.batches(STEPS)).numpy(), minlength=60)
    assert (table["n_obs"] == counts[table.index]).all()
    net = task.net()
    first = task.batches(STEPS)[0]
    held = next(recorder.record.observations())
    np.testing.assert_allclose(held.dots[:, 0], by_hand(net, losses, task, first)[0], rtol=1e-4)
    assert held.index.tolist() == first.tolist()


@pytest.mark.parametrize("pieces", [2, 4])
def test_micro_batches_of_a_step_are_one_step(task, losses, pieces):
    net, index = task.net(), torch.arange(12)
    whole = FInfluence(net, losses, query=task.query)
    parts = FInfluence(net, losses, query=task.query)
    for step in range(9):
        whole.observe((task.inputs[index], task.labels[index]), index, step=step, lr=0.1)
        for part in index.split(12 // pieces):
            parts.observe((task.inputs[part], task.labels[part]), part, step=step, lr=0.1)
    np.testing.assert_allclose(parts.finalize().rates, whole.finalize().rates, rtol=1e-5)
    assert next(parts.record.observations()).batch_size == 12


def test_order_inside_a_step_does_not_matter(task, losses):
    def rates(order):
        recorder = FInfluence(task.net(), losses, query=task.query)
        for step in range(8):
            recorder.observe((task.inputs[order], task.labels[order]), order, step=step, lr=0.1)
        return recorder.finalize().rates

    np.testing.assert_allclose(rates(torch.arange(30)), rates(torch.arange(29, -1, -1)), rtol=1e-5)


def test_equal_examples_have_equal_scores(task, losses):
    doubled = torch.cat([torch.arange(20), torch.tensor([7])])
    recorder = FInfluence(task.net(), losses, query=task.query)
    for step in range(8):
        recorder.observe((task.inputs[doubled], task.labels[doubled]), range(21), step=step, lr=0.1)
    rates = recorder.finalize().rates
    assert rates[7] == pytest.approx(rates[20], rel=1e-5)


def test_positive_scores_belong_to_examples_that_lower_the_query_loss(task, losses):
    net = task.net()
    recorder = FInfluence(net, losses, query=task.query)
    for step in range(8):
        recorder.observe((task.inputs, task.labels), range(60), step=step, lr=0.1)
    result = recorder.finalize()
    before = float(losses(net, task.query).mean().detach())
    for rows, sign in ((result.top(5), -1), (result.top(5, sign=-1), 1)):
        changed = task.net()
        index = torch.tensor(rows["index"].to_numpy())
        optimizer = torch.optim.SGD(changed.parameters(), lr=0.05)
        losses(changed, (task.inputs[index], task.labels[index])).mean().backward()
        optimizer.step()
        assert sign * (float(losses(changed, task.query).mean().detach()) - before) > 0


def test_training_is_not_disturbed(task, losses):
    """Parameters after training are bit for bit those without a recorder, dropout and random state included."""

    def trained(with_recorder):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3)).double()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        recorder = FInfluence(net, losses, query=task.query, optimizer=optimizer)
        for step, index in enumerate(task.batches(5)):
            optimizer.zero_grad()
            losses(net, (task.inputs[index], task.labels[index])).mean().backward()
            if with_recorder and recorder.due(step):
                recorder.observe((task.inputs[index], task.labels[index]), index)
            optimizer.step()
        assert net.training
        return net.state_dict()

    with_recorder, without = trained(True), trained(False)
    assert all(torch.equal(with_recorder[name], without[name]) for name in without)


def test_adams_metric_is_the_first_order_effect_of_its_step(task, losses):
    net = task.net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6, betas=(0.0, 0.99), eps=1e-8)
    batch = (task.inputs[:12], task.labels[:12])
    for _ in range(3):
        optimizer.zero_grad()
        losses(net, batch).mean().backward()
        optimizer.step()
    recorder = FInfluence(net, losses, query=task.query, optimizer=optimizer, precondition="adam", method="vmap")
    recorder.observe(batch, range(12), step=3)
    recorder.close_step()
    predicted = -1e-6 * float(next(recorder.record.observations()).dots.mean())
    moments = [optimizer.state[value]["exp_avg_sq"].clone() for value in net.parameters()]
    before = float(losses(net, task.query).mean().detach())
    gradients = torch.autograd.grad(losses(net, batch).mean(), list(net.parameters()))
    with torch.no_grad():
        for value, gradient, moment in zip(net.parameters(), gradients, moments, strict=True):
            value -= 1e-6 * gradient / ((moment / (1 - 0.99**3)).sqrt() + 1e-8)
    assert float(losses(net, task.query).mean().detach()) - before == pytest.approx(predicted, rel=1e-3)


def test_adam_is_not_observed_before_its_first_step(task, losses):
    net = task.net()
    optimizer = torch.optim.Adam(net.parameters())
    recorder = FInfluence(net, losses, query=task.query, optimizer=optimizer, precondition="adam")
    with pytest.warns(UserWarning, match="step 0: Adam has no second moments before its first step"):
        recorder.observe((task.inputs, task.labels), range(60), step=0)
    assert recorder.n_skipped == 1


def test_learning_rates_by_group_enter(task, losses):
    net = task.net()
    groups = [{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.0}]
    recorder = FInfluence(net, losses, query=task.query, optimizer=torch.optim.SGD(groups), method="ghost")
    recorder.observe((task.inputs, task.labels), range(60), step=0)
    recorder.close_step()
    alone = FInfluence(net, losses, query=task.query, parameters=["0.weight", "0.bias"])
    alone.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
    alone.close_step()
    first, second = (next(one.record.observations()).dots for one in (recorder, alone))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-7)


def test_several_queries_and_random_directions(task, losses):
    inputs, labels = task.query
    queries = {"first": (inputs[:10], labels[:10]), "second": (inputs[10:], labels[10:])}
    recorder = FInfluence(task.net(), losses, query=queries, random_directions=2)
    assert recorder.method == "ghost"
    for step in range(8):
        recorder.observe((task.inputs, task.labels), range(60), step=step, lr=0.1)
    assert recorder.record.setting.queries == ("first", "second", "random-0", "random-1")
    alone = FInfluence(task.net(), losses, query=queries["second"])
    for step in range(8):
        alone.observe((task.inputs, task.labels), range(60), step=step, lr=0.1)
    np.testing.assert_allclose(recorder.finalize(query="second").rates, alone.finalize().rates, rtol=1e-3, atol=1e-5)
    held = next(recorder.record.observations())
    np.testing.assert_allclose(held.query_norms[2:], held.query_norms[0])
    with pytest.raises(ValueError, match="no query 'third'; it has first, second"):
        recorder.finalize(query="third")


def test_a_model_without_forward_derivatives_goes_on_in_reverse(task, losses):
    class Squash(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return gradient * (1 - torch.tanh(x) ** 2)

    class Layer(nn.Module):
        def forward(self, x):
            return Squash.apply(x)

    plain = task.net()
    odd = nn.Sequential(plain[0], Layer(), plain[2])
    dots = []
    for net in (plain, odd):
        recorder = FInfluence(net, losses, query=task.query, method="jvp")
        if net is odd:
            with pytest.warns(UserWarning, match="no forward-mode derivative: going on with double-vjp"):
                recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
        else:
            recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
        recorder.close_step()
        dots.append(next(recorder.record.observations()).dots)
    assert recorder.record.setting.method == "double-vjp"
    np.testing.assert_allclose(dots[0], dots[1], rtol=1e-5)


def test_half_precision_is_observed_by_ghost_products(task, losses):
    net = task.net().bfloat16()
    query = (task.query[0].bfloat16(), task.query[1])
    recorder = FInfluence(net, losses, query=query)
    assert recorder.method == "ghost"
    for step in range(8):
        recorder.observe((task.inputs.bfloat16(), task.labels), range(60), step=step, lr=0.1)
    exact = FInfluence(task.net(), losses, query=task.query)
    for step in range(8):
        exact.observe((task.inputs, task.labels), range(60), step=step, lr=0.1)
    assert np.corrcoef(recorder.finalize().rates, exact.finalize().rates)[0, 1] > 0.99


def test_not_a_number_is_named_and_the_step_left_out(task, losses):
    inputs = task.inputs.clone()
    inputs[4, 0] = float("nan")
    recorder = FInfluence(task.net(), losses, query=task.query)
    with pytest.warns(UserWarning, match="step 7: loss or gradient of example 4 is not finite; the step is left out"):
        recorder.observe((inputs, task.labels), range(60), step=7, lr=0.1)
    assert recorder.n_skipped == 1
    with pytest.raises(ValueError, match="the record is empty"):
        recorder.finalize()


def test_examples_without_a_counting_step_have_no_score(task, losses):
    recorder = FInfluence(task.net(), losses, query=task.query)
    late = torch.arange(50, 60)
    recorder.observe((task.inputs[late], task.labels[late]), late, step=0, lr=0.0)  # warm-up: no step is taken
    for step in range(1, 9):
        recorder.observe((task.inputs[:50], task.labels[:50]), range(50), step=step, lr=0.1)
    result = recorder.finalize()
    assert np.isnan(result.rates[50:]).all()
    assert (result.scores["n_obs"][50:] == 0).all()
    assert result.summary().unscored == 10
    with pytest.raises(ValueError, match="example 50 has no score"):
        result.group([3, 50])


def test_steps_without_spread_are_counted(task, losses):
    alike = torch.zeros(6, dtype=torch.int64)
    recorder = FInfluence(task.net(), losses, query=task.query)
    recorder.observe((task.inputs[alike], task.labels[alike]), range(6), step=0, lr=0.1)
    with pytest.warns(UserWarning, match="observed at 0 steps"):
        result = recorder.finalize()
    assert np.isnan(result.rates).all()
    assert result.summary().degenerate_steps == 1


def test_bad_input(task, losses):
    net, batch = task.net(), (task.inputs, task.labels)

    def made(**options):
        return FInfluence(net, losses, **{"query": task.query, **options})

    recorder = made()
    with pytest.raises(ValueError, match="stable ids"):
        recorder.observe(batch)
    with pytest.raises(ValueError, match="ids must be 60 whole numbers"):
        recorder.observe(batch, range(59))
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        recorder.observe(batch, range(-1, 59))
    with pytest.raises(ValueError, match="which step is this"):
        recorder.observe(batch, range(60), lr=0.1)
    with pytest.raises(ValueError, match="which learning rate"):
        recorder.observe(batch, range(60), step=0)
    with pytest.raises(ValueError, match="example 0 appears twice in step 0"):
        recorder.observe(batch, [0, 0, *range(2, 60)], step=0, lr=0.1)
    with pytest.raises(ValueError, match="give a batch and its ids"):
        recorder.observe(step=0, lr=0.1)
    with pytest.raises(ValueError, match="'query' is empty"):
        made(query=(task.inputs[:0], task.labels[:0]))
    with pytest.raises(ValueError, match="target='query' needs query="):
        made(query=None)
    with pytest.raises(ValueError, match="batch_size= must say"):
        made(pool=(batch, range(60)))
    with pytest.raises(ValueError, match="every must be at least 1"):
        made(every=0)
    with pytest.raises(ValueError, match="method 'ghost', 'vmap' or 'project'"):
        FInfluence(net, losses, target="self", method="jvp")
    with pytest.raises(ValueError, match="use reduction='none'"):
        FInfluence(net, lambda m, b: losses(m, b).mean(), query=task.query).observe(batch, range(60), step=0, lr=1.0)
    with pytest.raises(ValueError, match="all parameters of the model are frozen"):
        FInfluence(task.net().requires_grad_(False), losses, query=task.query)


def test_query_that_is_trained_on_is_reported(task, losses):
    recorder = FInfluence(task.net(), losses, query=task.query, query_index=[5, 70])
    with pytest.warns(UserWarning, match="example 5 is in the query and trained on"):
        recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)


def test_batch_norm_in_training_mode_is_refused(task, losses):
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    recorder = FInfluence(net, losses, query=task.query, train_mode=True)
    with pytest.raises(ValueError, match="batch norm in training mode mixes examples"):
        recorder.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
    calm = FInfluence(net, losses, query=task.query)
    calm.observe((task.inputs, task.labels), range(60), step=0, lr=0.1)
    assert net[1].training


def test_nothing_is_observed_after_the_end(task, losses):
    recorder = FInfluence(task.net(), losses, query=task.query)
    for step in range(8):
        recorder.observe((task.inputs, task.labels), range(60), step=step, lr=0.1)
    recorder.finalize()
    with pytest.raises(RuntimeError, match="recorder is finalised"):
        recorder.observe((task.inputs, task.labels), range(60), step=8, lr=0.1)
