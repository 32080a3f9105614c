"""Inside a Hugging Face Trainer: the callback and the attached recorder against a plain loop, resume, a real model."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

from gnomon.models.tiny import tiny_decoder
from gnomon.training.influence import (
    FInfluence,
    FInfluenceCallback,
    WithIndex,
    attached,
    model_losses,
    observe_checkpoints,
    trainer_checkpoints,
)

STEPS = 10
pytestmark = [
    pytest.mark.filterwarnings("ignore:examples were observed"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
]


class Classifier(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.5)

    def forward(self, pixels, labels=None):
        logits = self.outer(torch.tanh(self.inner(pixels)))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def classifier():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier(PretrainedConfig())


def rows_of(task):
    inputs = task.inputs.float()
    return [{"pixels": x, "labels": y} for x, y in zip(inputs, task.labels, strict=True)]


def pool_of(task):
    return {"pixels": task.inputs.float(), "labels": task.labels}


def query_of(task):
    return {"pixels": task.query[0].float(), "labels": task.query[1]}


def arguments(folder, **options):
    common = {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "per_device_train_batch_size": 12,
        "learning_rate": 0.2,
        "lr_scheduler_type": "linear",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 3,
    }
    return TrainingArguments(**{**common, **options})


class Tracked(WithIndex):
    """Notes the order in which the trainer asks for examples."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.order: list[int] = []

    def __getitem__(self, position):
        self.order.append(int(position))
        return super().__getitem__(position)


def plain_loop(task, order, accumulation):
    """The same batches and learning rates without a trainer."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    recorder = FInfluence(model, query=query_of(task), optimizer=optimizer, n_train=60)
    size = 12 * accumulation
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.2 * (1 - step / STEPS)
        index = torch.tensor(order[step * size : (step + 1) * size])
        batch = {name: value[index] for name, value in pool_of(task).items()}
        recorder.observe(batch, index, step=step)
        optimizer.zero_grad()
        model_losses(model, batch).mean().backward()
        optimizer.step()
    return model, recorder.finalize()


@pytest.mark.parametrize("accumulation", [1, 4])
def test_attached_recorder_equals_a_plain_loop(task, tmp_path, capsys, accumulation):
    data = Tracked(rows_of(task))
    options = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 12 // accumulation}
    trainer = Trainer(classifier(), arguments(tmp_path, **options), train_dataset=data)
    recorder = FInfluence(trainer.model, query=query_of(task), n_train=60)
    with attached(trainer, recorder):
        trainer.train()
    assert "training_step" not in vars(trainer) or trainer.training_step.__self__ is trainer
    model, expected = plain_loop(task, data.order, 1)
    found = recorder.finalize()
    assert next(recorder.record.observations()).batch_size == 12
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    # Ranks jump where two scores are equal but for rounding: they may change places.
    pd.testing.assert_frame_equal(
        found.scores.drop(columns="p_rank"), expected.scores.drop(columns="p_rank"), rtol=2e-3, atol=1e-5
    )
    np.testing.assert_allclose(found.scores["p_rank"], expected.scores["p_rank"], atol=1.01 / 60)


def test_callback_observes_the_pool_before_every_step(task, tmp_path, capsys):
    trainer = Trainer(
        classifier(), arguments(tmp_path), train_dataset=Tracked(rows_of(task)), data_collator=without_index
    )
    pool = (pool_of(task), range(60))
    recorder = FInfluence(trainer.model, query=query_of(task), pool=pool, batch_size=12, every=3)
    trainer.add_callback(FInfluenceCallback(recorder))
    before = copy.deepcopy(trainer.model)
    trainer.train()
    steps = recorder.finalize().record.steps()
    assert steps["step"].tolist() == [0, 3, 6, 9]
    np.testing.assert_allclose(steps["lr"], [0.2 * (1 - step / STEPS) for step in (0, 3, 6, 9)])
    alone = FInfluence(before, query=query_of(task), pool=pool, batch_size=12)
    alone.observe(step=0, lr=0.2)
    alone.close_step()
    first, expected = (next(one.record.observations()) for one in (recorder, alone))
    np.testing.assert_allclose(first.dots, expected.dots, rtol=1e-4, atol=1e-6)


def without_index(items):
    return {
        "pixels": torch.stack([item["pixels"] for item in items]),
        "labels": torch.stack([item["labels"] for item in items]),
    }


@pytest.mark.parametrize("streamed", [False, True])
def test_recorder_resumes_with_the_trainer(task, tmp_path, capsys, streamed):
    def trained(folder, record, resume=None, stop=STEPS):
        saving = {"save_strategy": "steps", "save_steps": 5, "save_total_limit": 3}
        trainer = Trainer(
            classifier(),
            arguments(folder, **saving),
            train_dataset=WithIndex(rows_of(task)),
            data_collator=without_index,
        )
        pool = (pool_of(task), range(60))
        recorder = FInfluence(trainer.model, query=query_of(task), pool=pool, batch_size=12, folder=record)
        trainer.add_callback(FInfluenceCallback(recorder))
        trainer.train(resume_from_checkpoint=resume)
        return recorder.finalize()

    record = tmp_path / "record" if streamed else None
    whole = trained(tmp_path / "whole", record)
    if streamed:
        assert whole.record.last_step == STEPS - 1  # goes on from step 5: later steps are forgotten
    resumed = trained(tmp_path / "whole", record, resume=str(tmp_path / "whole" / "checkpoint-5"))
    assert resumed.record.steps()["step"].tolist() == list(range(STEPS))
    pd.testing.assert_frame_equal(resumed.scores, whole.scores, rtol=1e-4, atol=1e-6)


def test_checkpoints_of_a_finished_run_give_the_same_observations(task, tmp_path, capsys):
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer = Trainer(
        classifier(), arguments(tmp_path, **saving), train_dataset=WithIndex(rows_of(task)), data_collator=without_index
    )
    pool = (pool_of(task), range(60))
    live = FInfluence(trainer.model, query=query_of(task), pool=pool, batch_size=12, every=2)
    trainer.add_callback(FInfluenceCallback(live))
    trainer.train()
    checkpoints = trainer_checkpoints(tmp_path)
    assert [checkpoint.step for checkpoint in checkpoints] == [2, 4, 6, 8, 10]
    model = classifier()
    start = copy.deepcopy(model.state_dict())
    later = FInfluence(model, query=query_of(task), pool=pool, batch_size=12)
    observe_checkpoints(later, checkpoints)
    live.close_step()
    in_run = {held.step: held for held in live.record.observations()}
    for held in later.record.observations():
        if held.step in in_run:
            np.testing.assert_allclose(held.dots, in_run[held.step].dots, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(model.state_dict()[name], start[name]) for name in start)
    # The learning rate last logged before a checkpoint is that of the step before it.
    assert [round(checkpoint.lr, 3) for checkpoint in checkpoints] == [0.18, 0.14, 0.1, 0.06, 0.02]


def test_a_decoder_under_adam(tmp_path, capsys):
    model = tiny_decoder("llama", vocab=20, width=16, layers=1, heads=2, kv_heads=1, mlp_width=16).train()
    torch.manual_seed(0)
    ids = torch.randint(3, 20, (24, 6))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    options = {"optim": "adamw_torch", "per_device_train_batch_size": 8, "learning_rate": 3e-3, "warmup_steps": 2}
    trainer = Trainer(model, arguments(tmp_path, **options), train_dataset=WithIndex(rows))
    query = {"input_ids": ids[:4], "labels": ids[:4]}
    recorder = FInfluence(model, query=query, precondition="adam", n_train=24)
    with pytest.warns(UserWarning, match="Adam has no second moments"), attached(trainer, recorder):
        trainer.train()
    result = recorder.finalize()
    assert recorder.n_skipped == 1
    assert np.isfinite(result.rates).all()
    # The query's own four examples are trained on: they help it most.
    assert result.scores.set_index("index")["mu_run"].rank(ascending=False)[:4].mean() < 8


class LowRank(nn.Module):
    """A frozen linear layer with a trainable product of two thin ones beside it, as LoRA adapters are built."""

    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, hidden):
        return self.base(hidden) + self.lora_b(self.lora_a(hidden))


@pytest.mark.model
def test_smollm2_with_adapters_in_its_last_block(tmp_path, capsys):
    from gnomon.models.load import load

    loaded = load("smollm2")
    model = copy.deepcopy(loaded.model).requires_grad_(False)
    attention = model.model.layers[-1].self_attn
    torch.manual_seed(0)
    attention.q_proj, attention.v_proj = LowRank(attention.q_proj), LowRank(attention.v_proj)
    texts = ["Is it so? yes", "Is it so? no", "Was it so? yes", "Was it so? no"]
    encoded = loaded.tokenizer(texts, return_tensors="pt")
    pool = {**encoded, "labels": encoded["input_ids"].clone()}
    pool["labels"][:, :-1] = -100  # only the answer is learned
    rows = [{name: value[row] for name, value in pool.items()} for row in range(len(texts))]
    query = {name: value[:1] for name, value in pool.items()}
    options = {
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "gradient_accumulation_steps": 1,
    }
    trainer = Trainer(model, arguments(tmp_path, **options), train_dataset=rows)
    recorder = FInfluence(model, query=query, pool=(pool, range(4)), batch_size=4, method="ghost")
    trainer.add_callback(FInfluenceCallback(recorder))
    trainer.train()
    assert set(recorder.record.setting.parameters) == {
        f"model.layers.29.self_attn.{name}.lora_{part}.weight" for name in ("q_proj", "v_proj") for part in "ab"
    }
    first, last = list(recorder.finalize().record.observations())
    # The query's answer is yes, as that of every other example.
    assert first.dots[::2, 0].min() > first.dots[1::2, 0].max()
    assert last.query_losses[0] < first.query_losses[0]
    later, forward = (FInfluence(model, query=query, method=method) for method in ("ghost", "jvp"))
    for one in (later, forward):
        one.observe(pool, range(4), step=0, lr=1.0)
        one.close_step()
    by_ghost, by_forward = (next(one.record.observations()).dots for one in (later, forward))
    np.testing.assert_allclose(by_ghost, by_forward, rtol=2e-3, atol=1e-4 * np.abs(by_forward).max())


def test_bad_input(task, tmp_path):
    model = classifier()
    recorder = FInfluence(model, query=query_of(task), n_train=60)
    with pytest.raises(ValueError, match="a callback never sees the training batch"):
        FInfluenceCallback(recorder)
    dropping = Trainer(model, arguments(tmp_path, remove_unused_columns=True), train_dataset=rows_of(task))
    with pytest.raises(ValueError, match="remove_unused_columns=False"), attached(dropping, recorder):
        pass
    trainer = Trainer(model, arguments(tmp_path), train_dataset=rows_of(task))
    with pytest.raises(ValueError, match="no 'index': wrap the data set"), attached(trainer, recorder):
        trainer.train()
    with pytest.raises(FileNotFoundError, match="no checkpoint-"):
        trainer_checkpoints(tmp_path / "empty")
    pooled = FInfluence(model, query=query_of(task), pool=(pool_of(task), range(60)), batch_size=12)
    with pytest.raises(ValueError, match="no checkpoint to observe"):
        observe_checkpoints(pooled, [])
