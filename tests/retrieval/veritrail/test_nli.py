"""The judge from an inference model: what it reads of a tiny classifier whose answer is known."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from gnomon.retrieval.veritrail.claims import Claim
from gnomon.retrieval.veritrail.judges.judge import NodeEvidence, RulingTask
from gnomon.retrieval.veritrail.judges.nli import NliJudge
from gnomon.retrieval.veritrail.process import Node, Process
from gnomon.retrieval.veritrail.sentences import SentenceIndex

TEXTS = {"a": "yes", "b": "no", "c": " ".join(["maybe"] * 60 + ["yes"]), "end": "claim"}


def folder(path, labels, *, trained):
    """A classifier that looks at one word: ``yes`` entails, ``no`` contradicts, anything else is neutral."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "yes": 2, "no": 3, "maybe": 4, "claim": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )
    fast.save_pretrained(path)
    config = BertConfig(
        vocab_size=6, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=32, id2label=dict(enumerate(labels)),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    if trained:
        train(model, fast)
    model.save_pretrained(path)
    return path


def train(model, tokenizer):
    """Fit the classifier to the three words; the claim is always the same."""
    premises = ["yes", "no", "maybe", "maybe maybe yes", "maybe maybe", "maybe maybe maybe maybe yes", "no maybe"]
    truth = torch.tensor([0, 2, 1, 0, 1, 0, 2])
    tokens = tokenizer(premises, ["claim"] * len(premises), padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**tokens).logits, truth)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    path = folder(tmp_path_factory.mktemp("nli"), ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), trained=True)
    return NliJudge(path, encoder="tf-idf")


@pytest.mark.model
@pytest.mark.parametrize(
    ("nodes", "verdict", "cited"),
    [
        ("a", "supported", {"a#0"}),
        ("b", "unsupported", set()),
        ("ab", "inconclusive", {"a#0", "b#0"}),
        ("c", "supported", {"c#0"}),
    ],
)
def test_nodes_that_entail_support_and_nodes_that_contradict_speak_against(judge, nodes, verdict, cited):
    process = Process([Node(name, text) for name, text in TEXTS.items()], [(name, "end") for name in "abc"])
    index = SentenceIndex(process)
    evidence = tuple(NodeEvidence(name, index.of(name)) for name in nodes)
    (ruling,) = judge.rule([RulingTask(Claim("c1", "claim"), evidence)])
    assert ruling.verdict == verdict
    assert set(ruling.cited) == cited
    assert 0 <= ruling.score <= 1
    assert judge.identity["judge"] == "nli"


@pytest.mark.model
def test_a_classifier_without_an_entailment_label_needs_its_index(tmp_path):
    path = folder(tmp_path, ("good", "so-so", "bad"), trained=False)
    with pytest.raises(ValueError, match=r"no output of .* is named entailment \(good, so-so, bad\); give its index"):
        NliJudge(path)
    assert NliJudge(path, entailment=0, encoder="tf-idf").identity["entailment"] == 0
