"""Which training examples hurt? Influence from one ordinary training loop, with three lines added."""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from gnomon.training.influence import FInfluence

torch.manual_seed(0)
images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
x, y = torch.tensor(images[order] / 16, dtype=torch.float32), torch.tensor(digits[order])
held_out, x, y = (x[:400], y[:400]), x[400:1400], y[400:1400].clone()
wrong = range(50)  # somebody mislabelled the first fifty
y[:50] = (y[:50] + 1) % 10

net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


pool = ((x, y), range(1000))
recorder = FInfluence(net, losses, query=held_out, pool=pool, batch_size=50, optimizer=optimizer, every=10)  # 1
for step in range(200):
    index = torch.randint(1000, (50,))
    if recorder.due(step):  # 2
        recorder.observe()  # 3
    optimizer.zero_grad()
    losses(net, (x[index], y[index])).mean().backward()
    optimizer.step()

result = recorder.finalize()
print(result.top(10, sign=-1)[["index", "mu_run", "se", "q", "mean_loss"]].round(3).to_string(index=False))
group = result.group(wrong)
low, _, high = group.null
print(f"the mislabelled fifty: mu_run {group.mu_run:.1f} +- {group.se:.1f}, p {group.p:.3f}")
print(f"random groups of fifty: {low:.1f} to {high:.1f}")
print(f"mislabelled among the fifty most harmful: {result.top(50, sign=-1)['index'].isin(wrong).sum()}")
facts = result.summary()
print(f"distinct scores {facts.distinct:.0%}, odd against even steps {facts.reliability:.2f}")
