"""A judge from a natural-language-inference model: any sequence classifier that knows entailment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gnomon.models.chat import Missing
from gnomon.models.embeddings import Encoder
from gnomon.models.quiet import quiet_transformers
from gnomon.retrieval.veritrail.claims import Claim, Extraction
from gnomon.retrieval.veritrail.judges.judge import Judge, Ruling, RulingTask, Selection, SelectionTask, Verdict
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.sentences import SentenceIndex

_LEVEL = 0.5


class NliJudge(Judge):
    """Rules by the probability that the evidence entails the claim; finds evidence as the offline judge does.

    The premise is the evidence of one node: what the judge selected, or the whole source document, cut into pieces the
    model can read. The largest probability of entailment is the score; at 1/2 the claim is supported, unless another
    node contradicts it as surely.

    Args:
        folder: Folder or hub id of a Hugging Face sequence classifier with safetensors weights.
        entailment: Its output for entailment; ``None``: the one whose label says so.
        contradiction: Its output for contradiction; ``None``: the one whose label says so, if any does.
        encoder: Sentence vectors for finding evidence.
        batch: Pairs read at once.

    Raises:
        ValueError: If no output is named entailment and none was given.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        entailment: int | None = None,
        contradiction: int | None = None,
        encoder: Encoder = "auto",
        batch: int = 16,
    ) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        with quiet_transformers():
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            model: Any = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True)
        self._model: Any = model.eval()
        labels = {int(index): str(label).lower() for index, label in model.config.id2label.items()}
        found = entailment if entailment is not None else _labelled(labels, "entail")
        if found is None:
            raise ValueError(
                f"no output of {folder} is named entailment ({', '.join(labels.values())}); give its index"
            )
        self._entailment = found
        self._contradiction = contradiction if contradiction is not None else _labelled(labels, "contradict")
        self._finder = OfflineJudge(encoder)
        self._batch = batch
        self._name = str(folder)
        self._longest = min(int(self._tokenizer.model_max_length), int(model.config.max_position_embeddings))

    @property
    def identity(self) -> dict[str, Any]:
        """The model and what finds evidence for it."""
        return {"judge": "nli", "model": self._name, "entailment": self._entailment, "finder": self._finder.identity}

    def prepare(self, index: SentenceIndex, claims: Sequence[Claim]) -> None:
        """As the offline judge, which finds evidence."""
        self._finder.prepare(index, claims)

    def extract(self, index: SentenceIndex) -> Extraction:
        """Claims by rules."""
        return self._finder.extract(index)

    def decompose(self, claims: Sequence[Claim]) -> list[Claim]:
        """Sub-claims by rules."""
        return self._finder.decompose(claims)

    def select(self, tasks: Sequence[SelectionTask]) -> list[Selection | Missing]:
        """As the offline judge."""
        return self._finder.select(tasks)

    def rule(self, tasks: Sequence[RulingTask]) -> list[Ruling | Missing]:
        """Verdicts from the probabilities of entailment and contradiction of every node's evidence."""
        asked = [
            (number, place, premise)
            for number, task in enumerate(tasks)
            for place, node in enumerate(task.evidence)
            for premise in self._premises(" ".join(s.text for s in node.sentences), tasks[number].claim.text)
        ]
        outputs = self._probabilities([(premise, tasks[number].claim.text) for number, _, premise in asked])
        by_task: list[dict[int, tuple[float, float]]] = [{} for _ in tasks]
        for (number, place, _), row in zip(asked, outputs, strict=True):
            entailed, denied = by_task[number].get(place, (0.0, 0.0))
            against = row[self._contradiction] if self._contradiction is not None else 0.0
            by_task[number][place] = max(entailed, row[self._entailment]), max(denied, against)
        return [_ruling(task, nodes) for task, nodes in zip(tasks, by_task, strict=True)]

    def _premises(self, text: str, claim: str) -> list[str]:
        """The text in pieces that fit beside the claim into what the model can read."""
        room = max(16, self._longest - len(self._tokenizer(claim)["input_ids"]) - 3)
        tokens = self._tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        if len(tokens) <= room:
            return [text]
        return [self._tokenizer.decode(tokens[start : start + room]) for start in range(0, len(tokens), room)]

    def _probabilities(self, pairs: list[tuple[str, str]]) -> list[list[float]]:
        rows: list[list[float]] = []
        for start in range(0, len(pairs), self._batch):
            part = pairs[start : start + self._batch]
            tokens = self._tokenizer(
                [premise for premise, _ in part],
                [claim for _, claim in part],
                padding=True,
                truncation="only_first",
                max_length=self._longest,
                return_tensors="pt",
            )
            with torch.inference_mode():
                rows += torch.softmax(self._model(**tokens).logits.float(), dim=-1).tolist()
        return rows


def _labelled(labels: dict[int, str], word: str) -> int | None:
    return next((index for index, label in labels.items() if label.startswith(word)), None)


def _ruling(task: RulingTask, nodes: dict[int, tuple[float, float]]) -> Ruling:
    best = max(nodes, key=lambda place: nodes[place][0])
    score = nodes[best][0]
    supporting = [place for place, (entailed, _) in nodes.items() if entailed >= _LEVEL]
    against = [place for place, (_, denied) in nodes.items() if denied >= _LEVEL and place not in supporting]
    verdict: Verdict = "unsupported" if not supporting else "inconclusive" if against else "supported"
    grounds = supporting + (against if verdict == "inconclusive" else [])
    cited = tuple(sentence.id for place in grounds for sentence in task.evidence[place].sentences)
    return Ruling(verdict, score, f"entailed with probability {score:.2f} by {task.evidence[best].node}", (), cited)
