"""Processes from GraphRAG's output folder, written here as the current version writes it."""

import numpy as np
import pandas as pd
import pytest

from gnomon.retrieval.veritrail import GraphError, OfflineJudge, OracleJudge, Process, verify
from gnomon.retrieval.veritrail.generator import make_process

ANSWER = "Corvus closed its plant [Data: Reports (1, 99)]. Marlowe hired [Data: Entities (1); Sources (0)]."


def tables():
    """Two text units, three entities, a relationship; two communities, one inside the other."""
    return {
        "text_units": pd.DataFrame(
            {
                "id": ["u0", "u1"],
                "human_readable_id": [0, 1],
                "text": ["Corvus closed its plant.", "Marlowe hired 300 people."],
                "document_id": ["d0", "d1"],
            }
        ),
        "entities": pd.DataFrame(
            {
                "id": ["e0", "e1", "e2"],
                "human_readable_id": [0, 1, 2],
                "title": ["CORVUS", "MARLOWE", "NOBODY"],
                "description": ["A firm that closed a plant.", "A firm that hired.", "Named nowhere."],
                "text_unit_ids": [["u0"], ["u1"], []],
            }
        ),
        "relationships": pd.DataFrame(
            {
                "id": ["r0"],
                "human_readable_id": [0],
                "source": ["CORVUS"],
                "target": ["MARLOWE"],
                "description": ["Both are firms."],
                "text_unit_ids": [["u0", "u1"]],
            }
        ),
        "communities": pd.DataFrame(
            {
                "community": [0, 1],
                "level": [0, 1],
                "children": [[1], []],
                "entity_ids": [["e0", "e1"], ["e0"]],
                "relationship_ids": [["r0"], []],
            }
        ),
        "community_reports": pd.DataFrame(
            {
                "id": ["x0", "x1"],
                "human_readable_id": [0, 1],
                "community": [0, 1],
                "level": [0, 1],
                "children": [np.array([1]), np.array([], dtype=int)],
                "title": ["Firms", "Corvus"],
                "full_content": ["Firms closed and hired.", "Corvus closed its plant."],
            }
        ),
    }


@pytest.fixture
def folder(tmp_path):
    def write(changes=None, prefix=""):
        for name, table in {**tables(), **(changes or {})}.items():
            table.to_parquet(tmp_path / f"{prefix}{name}.parquet")
        return tmp_path

    return write


def test_references_in_the_answer_name_its_sources(folder):
    process = Process.from_graphrag(folder(), ANSWER, question="What happened?")
    # Report 99 does not exist: the model invented it.
    assert process.sources("answer") == ("report:1", "entity:e1", "unit:u0")
    assert process.sources("report:0") == ("entity:e0", "entity:e1", "relationship:r0", "report:1")
    assert {node: process.stage(node) for node in process.nodes} == {
        "unit:u0": 1,
        "unit:u1": 1,
        "entity:e0": 3,
        "entity:e1": 3,
        "relationship:r0": 3,
        "report:1": 4,
        "report:0": 5,
        "answer": 5,
    }
    assert process.nodes["unit:u0"].meta == {"documents": ["d0"]}
    assert process.nodes["relationship:r0"].meta == {"title": "CORVUS - MARLOWE"}
    assert process.question == "What happened?"


def test_reports_and_map_answers_can_be_given(folder):
    where = folder()
    assert Process.from_graphrag(where, ANSWER, reports=[0, "x1"]).sources("answer") == ("report:0", "report:1")
    process = Process.from_graphrag(where, "Both.", map_answers={"Corvus closed.": [1], "Firms hired.": [0, 1]})
    assert process.sources("answer") == ("map:1", "map:2")
    assert process.sources("map:2") == ("report:0", "report:1")
    assert process.last_stage == 7


def test_without_references_all_reports_of_a_level_are_sources(folder):
    where = folder()
    assert Process.from_graphrag(where, "Both.").sources("answer") == ("report:1",)
    assert Process.from_graphrag(where, "Both.", level=0).sources("answer") == ("report:0",)
    with pytest.raises(ValueError, match=r"no report has level 7; there are levels \[0, 1\]"):
        Process.from_graphrag(where, "Both.", level=7)


def test_files_of_the_first_version(folder):
    units = tables()["text_units"].drop(columns="document_id").assign(document_ids=[["d0"], ["d1", "d2"]])
    process = Process.from_graphrag(folder({"text_units": units}, "create_final_"), ANSWER)
    assert process.nodes["unit:u1"].meta == {"documents": ["d1", "d2"]}


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*absent"):
        Process.from_graphrag(tmp_path / "absent", ANSWER)
    with pytest.raises(FileNotFoundError, match=r"has no text_units\.parquet"):
        Process.from_graphrag(tmp_path, ANSWER)
    where = folder({"entities": tables()["entities"].drop(columns="text_unit_ids")})
    with pytest.raises(
        ValueError, match=r"entities\.parquet has no column text_unit_ids; it has id, human_readable_id"
    ):
        Process.from_graphrag(where, ANSWER)
    where = folder({"community_reports": tables()["community_reports"].drop(columns="full_content")})
    with pytest.raises(ValueError, match=r"community_reports\.parquet has neither full_content nor summary"):
        Process.from_graphrag(where, ANSWER)
    (where / "communities.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"communities\.parquet cannot be read"):
        Process.from_graphrag(where, ANSWER)


def test_unknown_reports(folder):
    where = folder()
    with pytest.raises(ValueError, match="no reports 9; there are 0, 1"):
        Process.from_graphrag(where, ANSWER, reports=[9])
    empty = {name: tables()[name].head(0) for name in ("communities", "community_reports")}
    with pytest.raises((GraphError, ValueError), match="no report has level"):
        Process.from_graphrag(folder(empty), "Both.")


# ---- a generated process, written as GraphRAG writes it


def named_as_read(node):
    """Name of a generated node once it was read back; what was said about single chunks is not in the folder."""
    kind, _, rest = node.partition("-")
    match kind:
        case "chunk":
            return f"unit:{node}"
        case "entity":
            return f"entity:{node}"
        case "report":
            return f"report:{rest}"
        case "map":
            return f"map:{int(rest) + 1}"  # map answers are numbered from 1
        case "final":
            return "answer"


def written_and_read(process, folder):
    """The process through a folder of GraphRAG's tables."""
    kinds = {}
    for node in process.nodes:
        kinds.setdefault(node.partition("-")[0], []).append(node)
    texts = {node: process.nodes[node].text for node in process.nodes}
    communities = [int(report.partition("-")[2]) for report in kinds["report"]]
    chunks = [
        [chunk for raw in process.sources(entity) for chunk in process.sources(raw)] for entity in kinds["entity"]
    ]
    frames = {
        "text_units": pd.DataFrame({"id": kinds["chunk"], "text": [texts[chunk] for chunk in kinds["chunk"]]}),
        "entities": pd.DataFrame(
            {
                "id": kinds["entity"],
                "description": [texts[entity] for entity in kinds["entity"]],
                "text_unit_ids": chunks,
            }
        ),
        "relationships": pd.DataFrame(columns=["id", "description", "text_unit_ids"]),
        "communities": pd.DataFrame(
            {
                "community": communities,
                "entity_ids": [list(process.sources(report)) for report in kinds["report"]],
                "relationship_ids": [[] for _ in communities],
            }
        ),
        "community_reports": pd.DataFrame(
            {
                "community": communities,
                "level": 0,
                "full_content": [texts[report] for report in kinds["report"]],
            }
        ),
    }
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet")
    answers = {
        texts[answer]: [int(report.partition("-")[2]) for report in process.sources(answer)] for answer in kinds["map"]
    }
    return Process.from_graphrag(folder, texts["final"], map_answers=answers)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("judge", ["oracle", "offline"])
def test_a_generated_process_read_back_gives_the_same_verdicts_and_origins(tmp_path, judge, seed):
    process, truth = make_process(seed, topology="graphrag", chunks=8, claims=14, fan=2, near_duplicates=1)
    read = written_and_read(process, tmp_path)
    assert [read.nodes[named_as_read(node)].text for node in process.nodes if named_as_read(node)] == [
        process.nodes[node].text for node in process.nodes if named_as_read(node)
    ]
    assert {read.stage(node) for node in read.nodes} == {1, 3, 4, 5, 6}

    def sentences_as_read(ids):
        places = (sentence.rpartition("#")[::2] for sentence in ids)
        return {f"{named_as_read(node)}#{place}" for node, place in places if named_as_read(node)}

    support = {known.claim.id: known.supporting for known in truth.claims}
    before, after = (
        OfflineJudge("tf-idf") if judge == "offline" else OracleJudge(told)
        for told in (support, {claim: sentences_as_read(ids) for claim, ids in support.items()})
    )
    original = verify(process, judge=before, claims=truth.texts).claims
    repeated = verify(read, judge=after, claims=truth.texts).claims
    assert [found.verdict for found in repeated] == [found.verdict for found in original]
    kept = [
        (ours.origin, theirs.origin)
        for ours, theirs in zip(original, repeated, strict=True)
        if ours.origin and 2 not in ours.origin.stages
    ]
    assert len(kept) >= 4
    for ours, theirs in kept:
        assert theirs.stages == ours.stages
        assert theirs.nodes == tuple(named_as_read(node) for node in ours.nodes)
