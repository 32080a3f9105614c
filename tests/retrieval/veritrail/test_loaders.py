"""Processes from JSON, networkx and a recorder."""

import json
from pathlib import Path

import jsonschema
import networkx as nx
import pytest

from gnomon.retrieval.veritrail import GraphError, Node, Process
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.loaders import json_format
from gnomon.retrieval.veritrail.loaders.recorder import Recorder

CHAIN = {
    "nodes": [
        {"id": "chunk", "text": "Corvus closed its plant.", "meta": {"page": 3}},
        {"id": "summary", "text": "The plant was closed.", "stage": 4},
        {"id": "answer", "text": "It was closed."},
    ],
    "edges": [["chunk", "summary"], ["summary", "answer"]],
    "question": "What happened?",
}
SCHEMA = Path(json_format.__file__).with_name("process.schema.json")


def test_json_keeps_everything(tmp_path):
    process = Process.from_json(CHAIN)
    assert process.edges == (("chunk", "summary"), ("summary", "answer"))
    assert (process.terminal, process.question) == ("answer", "What happened?")
    assert [process.stage(node) for node in process.nodes] == [1, 4, 5]
    assert process.nodes["chunk"].meta == {"page": 3}
    process.to_json(tmp_path / "process.json")
    again = Process.from_json(tmp_path / "process.json")
    assert again.digest() == process.digest()
    assert again.nodes["chunk"].meta == {"page": 3}


def test_edges_may_stand_with_the_nodes_or_one_node_a_line(tmp_path):
    nodes = [
        {"id": "chunk", "text": "Corvus closed its plant."},
        {"id": "answer", "text": "It was closed.", "sources": ["chunk"]},
    ]
    lines = tmp_path / "process.jsonl"
    lines.write_text("\n".join(map(json.dumps, [*nodes, {"question": "What happened?", "terminal": "answer"}])))
    assert (
        Process.from_json(lines).digest() == Process.from_json({"nodes": nodes, "question": "What happened?"}).digest()
    )


def test_a_generated_process_survives_the_round_trip_and_the_published_schema(tmp_path):
    process, _ = make_process(5)
    path = tmp_path / "process.json"
    process.to_json(path)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(path.read_text()))
    assert Process.from_json(path).digest() == process.digest()


def test_the_published_schema_is_that_of_the_reader():
    published = json.loads(SCHEMA.read_text())
    assert published.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    assert published == json_format.ProcessRecord.model_json_schema()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("", ValueError, "is empty"),
        ("{", ValueError, "is no JSON: .* in line 1"),
        ('{"id": "a", "text": "x"}\n{"id" "b"}', ValueError, "is no JSON: .* in line 2"),
        ('{"nodes": [{"id": "a"}]}', ValueError, r"nodes\[0\]\.text: Field required"),
        ('{"nodes": [{"id": 1, "text": "x"}]}', ValueError, r"nodes\[0\]\.id: Input should be a valid string"),
        ('{"nodes": [{"id": "a", "text": "x", "source": []}]}', ValueError, r"nodes\[0\]\.source: Extra inputs"),
        ('{"nodes": [], "edges": [["a"]]}', ValueError, r"edges\[0\]"),
        ('{"nodes": []}', GraphError, "there are no nodes"),
        ('[{"id": "a", "text": "x", "sources": ["b"]}]', ValueError, "process.json: nodes"),
        (json.dumps({**CHAIN, "edges": [["chunk", "summary"], ["summary", "chunk"]]}), GraphError, "cycle: "),
        (json.dumps({**CHAIN, "edges": [["chunk", "nowhere"]]}), GraphError, "'nowhere', which is no node"),
    ],
)
def test_faults_of_files_are_named_with_their_place(tmp_path, content, error, message):
    path = tmp_path / "process.json"
    path.write_text(content)
    with pytest.raises(error, match=message) as caught:
        Process.from_json(path)
    assert str(path) in str(caught.value)


def test_a_missing_file():
    with pytest.raises(FileNotFoundError, match=r"no file absent\.json"):
        Process.from_json("absent.json")


def test_networkx_attributes_become_text_stage_and_meta():
    graph = nx.DiGraph()
    graph.add_node("chunk", text="Corvus left.", page=3)
    graph.add_node("answer", text="It left.", stage=7)
    graph.add_edge("chunk", "answer", weight=2)
    process = Process.from_networkx(graph, question="Who left?")
    assert process.nodes["chunk"] == Node("chunk", "Corvus left.", None, {"page": 3})
    assert (process.stage("answer"), process.question) == (7, "Who left?")


def test_networkx_graphs_without_text_or_direction():
    with pytest.raises(GraphError, match="node 'a' has no attribute 'text'"):
        Process.from_networkx(nx.DiGraph([("a", "b")]))
    with pytest.raises(GraphError, match="undirected"):
        Process.from_networkx(nx.Graph([("a", "b")]))


def test_a_recorder_writes_what_a_pipeline_did(tmp_path):
    path = tmp_path / "trace.json"
    with Recorder(path, question="What happened?") as recorder:
        chunks = [recorder.node(text, id=f"chunk-{n}") for n, text in enumerate(["Corvus left.", "Sable came."])]
        summary = recorder.node("One left, one came.", sources=chunks, stage=2, meta={"model": "m"})
        recorder.node("Two firms moved.", sources=[summary])
    process = Process.from_json(path)
    assert process.digest() == recorder.process().digest()
    assert process.terminal == "n4"
    assert process.nodes["n3"].meta == {"model": "m"}


def test_a_recorder_writes_nothing_when_the_pipeline_fails(tmp_path):
    def pipeline():
        with Recorder(tmp_path / "trace.json") as recorder:
            recorder.node("Corvus left.")
            raise RuntimeError("the model is down")

    with pytest.raises(RuntimeError, match="the model is down"):
        pipeline()
    assert not (tmp_path / "trace.json").exists()


def test_a_recorder_refuses_unknown_sources_and_repeated_ids():
    recorder = Recorder()
    recorder.node("Corvus left.", id="a")
    with pytest.raises(GraphError, match="two nodes have the id 'a'"):
        recorder.node("Again.", id="a")
    with pytest.raises(GraphError, match="source 'b' of node 'n2' was not recorded"):
        recorder.node("It left.", sources=["b"])
