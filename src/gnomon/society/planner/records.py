"""Decisions of mediators and their users as records: one a line of a JSONL file, or a row of a CSV file.

One schema serves both seats. The audit reads the planner's side (state, declared and used precision, signal); the
estimation of an agent's biases reads the other one (public belief, precision, signal, and what the agent believed).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from scipy.special import log_expit, logit

TOLERATED = 0.05
"""Share of answers that may be missing before nothing is estimated from the others."""


def _plus_or_minus_one(value: int) -> int:
    if value not in (1, -1):
        raise ValueError("should be 1 (good) or -1 (bad)")
    return value


Sign = Annotated[int, AfterValidator(_plus_or_minus_one)]
Probability = Annotated[float, Field(ge=0, le=1)]
Precision = Annotated[float, Field(ge=0.5, le=1)]
LogProbability = Annotated[float, Field(le=0)]


_MAY_BE_MISSING = ("omega", "q_used", "signal", "belief_reported", "action", "logprob_A", "logprob_B", "tokens")


class Record(BaseModel):
    """One decision: a planner's precision, an agent's answer, or both sides of a round.

    Args:
        run_id: The crowd, or the person.
        seed: Seed of the crowd.
        scenario: What the choice is about.
        paraphrase: Which wording.
        role: Whose decision it is; ``round`` where the record holds both.
        backend: Where the model ran.
        model: Its name.
        prompt_sha: Hash of the prompt.
        round: Round within the run.
        omega: State of the world, 1 good or -1 bad.
        b_public: Public belief before the round.
        q_declared: Precision that people were told.
        q_used: Precision that was used.
        signal: The private signal, 1 good or -1 bad.
        belief_reported: The agent's belief after it, strictly between 0 and 1.
        action: What the agent did, 1 good or -1 bad.
        logprob_A: Log-probability of the letter A among A and B.
        logprob_B: That of the letter B.
        label_order: Whether the good action is called A (``good-first``) or B.
        tokens: Tokens read and written.
        parse_ok: Whether the reply could be read.
    """

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    run_id: str = "0"
    seed: int = 0
    scenario: str = ""
    paraphrase: int = 0
    role: Literal["planner", "agent", "round"] = "round"
    backend: str = ""
    model: str = ""
    prompt_sha: str = ""
    round: Annotated[int, Field(ge=0)] = 0
    omega: Sign | None = None
    b_public: Probability
    q_declared: Precision
    q_used: Precision | None = None
    signal: Sign | None = None
    belief_reported: Annotated[float, Field(gt=0, lt=1)] | None = None
    action: Sign | None = None
    logprob_A: LogProbability | None = None
    logprob_B: LogProbability | None = None
    label_order: Literal["good-first", "bad-first"] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    parse_ok: bool = True


def read_records(path: Path) -> pd.DataFrame:
    """Records from a JSONL file, or from a CSV file with the same names as columns; the index is the line.

    Names that are no field are left out; empty cells of a CSV file are missing values.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is no record; the message names line and field. If the file holds none.
    """
    lines, records = [], []
    for line, row in _rows(path):
        try:
            records.append(Record.model_validate(row).model_dump())
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(f"{name}: " for name in first["loc"])
            got = "" if first["type"] == "missing" else f", got {first['input']!r}"
            raise ValueError(f"{path} line {line}: {where}{first['msg']}{got}") from None
        lines.append(line)
    if not records:
        raise ValueError(f"{path} holds no records")
    return pd.DataFrame(records, index=pd.Index(lines, name="line")).astype(dict.fromkeys(_MAY_BE_MISSING, float))


def write_records(records: pd.DataFrame, path: Path) -> None:
    """Write records as JSONL, or as CSV if the file is named so."""
    if path.suffix == ".csv":
        records.to_csv(path, index=False)
    else:
        records.to_json(path, orient="records", lines=True, double_precision=15)


def as_records(asked: pd.DataFrame, **shared: Any) -> pd.DataFrame:
    """Answers of :func:`~gnomon.society.planner.readouts.ask_agents` as records, one a label order.

    Args:
        asked: The answers.
        shared: Fields that all records share: scenario, paraphrase, model ...
    """
    orders = []
    for order, column in (("good-first", "logodds_A_first"), ("bad-first", "logodds_A_swapped")):
        towards_a = asked[column].to_numpy(dtype=float)
        orders.append(
            asked[["b_public", "q_declared", "signal", "prompt_sha"]].assign(
                role="agent",
                label_order=order,
                logprob_A=log_expit(towards_a),
                logprob_B=log_expit(-towards_a),
                parse_ok=np.isfinite(towards_a),
                **shared,
            )
        )
    return _with_all_fields(pd.concat(orders).sort_index(kind="stable").reset_index(drop=True))


def answers(records: pd.DataFrame) -> pd.DataFrame:
    """What agents believed, ready for :func:`~gnomon.society.planner.estimation.estimate_agent`.

    A stated belief is taken as it is. Log-probabilities of the letters are averaged over both label orders, so that a
    preference for a letter cancels. A cluster is a scenario with a paraphrase, or the run where no scenario is named.

    Raises:
        ValueError: If a required column is missing, if more than 5 % of the answers are, or if a question was asked in
            one label order only.
    """
    records = _with_all_fields(records)
    asked = records.loc[(records["role"] != "planner") & records["signal"].notna()]
    if asked.empty:
        raise ValueError("no record has an agent's signal")
    asked = asked.assign(
        cluster=[
            f"{scenario}-{paraphrase}" if scenario else str(run)
            for scenario, paraphrase, run in zip(asked["scenario"], asked["paraphrase"], asked["run_id"], strict=True)
        ]
    )
    stated = asked["belief_reported"].notna() & asked["parse_ok"]
    lettered = asked["label_order"].notna() & ~stated
    towards_a = (asked["logprob_A"] - asked["logprob_B"]).astype(float).where(lettered & asked["parse_ok"])
    missing = 1 - float(np.mean(stated | towards_a.notna()))
    if missing > TOLERATED:
        raise ValueError(f"{missing:.0%} of {len(asked)} answers are missing, more than {TOLERATED:.0%}")
    said = asked.loc[stated].assign(logodds=lambda rows: logit(rows["belief_reported"].astype(float)))
    found = pd.concat([said, _without_label_bias(asked.assign(towards_a=towards_a).loc[lettered])])
    return pd.DataFrame(
        {
            "cluster": found["cluster"],
            "l": logit(found["b_public"].astype(float)),
            "lam": logit(found["q_declared"].astype(float)),
            "signal": found["signal"].astype(int),
            "logodds": found["logodds"],
        }
    ).reset_index(drop=True)


def _with_all_fields(records: pd.DataFrame) -> pd.DataFrame:
    """The records with the fields they lack at their defaults, in the order of the schema."""
    lacking = {name: field for name, field in Record.model_fields.items() if name not in records}
    required = [name for name, field in lacking.items() if field.is_required()]
    if required:
        raise ValueError(f"records lack the columns {', '.join(required)}; they have {', '.join(records.columns)}")
    defaults = {name: np.nan if name in _MAY_BE_MISSING else field.default for name, field in lacking.items()}
    return records.assign(**defaults).reindex(columns=list(Record.model_fields))


def _without_label_bias(asked: pd.DataFrame) -> pd.DataFrame:
    """Log-odds of the good action for every question that was answered in both label orders."""
    question = ["cluster", "run_id", "round", "b_public", "q_declared", "signal"]
    orders = np.asarray(asked.groupby(question)["label_order"].transform("nunique"), dtype=int)
    if len(lone := np.flatnonzero(orders < 2)):
        raise ValueError(
            f"{asked.index.name or 'row'} {asked.index[lone[0]]}: the question was asked in one label order only, "
            "so that a preference for a letter cannot be told from a belief"
        )
    good_first = asked["label_order"] == "good-first"
    by_order = asked.assign(logodds=asked["towards_a"].where(good_first, -asked["towards_a"])).pivot_table(
        index=question, columns="label_order", values="logodds"
    )
    return by_order.dropna().mean(axis=1).rename("logodds").reset_index()


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(newline="") as file:
        if path.suffix == ".csv":
            for row in (reader := csv.DictReader(file)):
                yield reader.line_num, {name: value for name, value in row.items() if value not in ("", None)}
            return
        for line, text in enumerate(file, start=1):
            if text.strip():
                try:
                    yield line, json.loads(text)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path} line {line}: no JSON ({error.msg} at column {error.colno})") from None
