"""Which heads of your model look at where, and which at what? Label them, with a re-initialised copy beside.

Run it as it is, or on your own model and text: ``python examples/rope_heads.py MODEL TEXT_FILE``.
"""

import sys

from gnomon.data.corpora import prose, text_file
from gnomon.mechanisms.rope_heads import HeadProfiler
from gnomon.models.load import load
from gnomon.models.randomize import randomize

name = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
texts = text_file(sys.argv[2]).texts if len(sys.argv) > 2 else prose().texts
loaded = load(name)


def profile(model):
    return HeadProfiler(model, loaded.tokenizer, queries_per_prompt=2, max_length=64).profile(texts[:8])


trained, control = profile(loaded.model), profile(randomize(loaded.model, "random-init", seed=0))
print(trained)

positional = trained.scores.query("label == 'positional'").sort_values("positional", ascending=False)
print(positional[["layer", "head", "positional", "symbolic", "high"]].head(10).round(2).to_string(index=False))

for label, found in (("trained", trained), ("re-initialised", control)):
    low, high = found.scores["balance"].quantile([0.1, 0.9])
    print(f"{label}: balance of heads from {low:.2f} to {high:.2f} (10 % to 90 %; 1 positional, 0 symbolic)")
