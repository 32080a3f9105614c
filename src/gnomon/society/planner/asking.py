"""A model of one's own in the agent's seat, in every scenario and wording, as records."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gnomon.models.call_cache import CallBudget, CallCache
from gnomon.models.endpoint import chat_model
from gnomon.society.planner.readouts import ask_agents
from gnomon.society.planner.records import as_records
from gnomon.society.planner.scenarios import SCENARIOS

BELIEFS = (0.2, 0.35, 0.5, 0.65, 0.8)
PRECISIONS = (0.6, 0.75, 0.9)


def ask_everywhere(
    model: str, scenarios: Sequence[str], paraphrases: int, *, max_calls: int | None = None, ledger: str = "ask"
) -> pd.DataFrame:
    """Answers of a model by name at five beliefs, three precisions and both signals, in both label orders.

    Args:
        model: As :func:`~gnomon.models.endpoint.chat_model` takes it.
        scenarios: Their names; all if empty.
        paraphrases: Wordings of each.
        max_calls: Calls to a server that may be made; answers beyond are missing. Calls are cached, so that asking
            again goes on where the limit was met.
        ledger: Whose calls are counted together.

    Raises:
        ValueError: If there is no such scenario.
    """
    for name in scenarios:
        if name not in SCENARIOS:
            raise ValueError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    cache = CallCache.default()
    chat = chat_model(model, cache=cache, budget=CallBudget(cache.path, ledger, max_calls))
    return pd.concat(
        [
            as_records(
                ask_agents(chat, SCENARIOS[name], paraphrase, beliefs=BELIEFS, precisions=PRECISIONS),
                scenario=name,
                paraphrase=paraphrase,
                model=model,
                backend="server" if "@" in model else "local",
            )
            for name in scenarios or SCENARIOS
            for paraphrase in range(paraphrases)
        ],
        ignore_index=True,
    )
