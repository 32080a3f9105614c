"""Processes from traces: OpenTelemetry spans and LangChain runs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document as LangChainDocument
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from gnomon.retrieval.veritrail import GraphError, Process
from gnomon.retrieval.veritrail.loaders.langchain_callback import ProcessCallback
from gnomon.retrieval.veritrail.loaders.steps import Step, assemble, document

REPORT = "Corvus Electronics closed its plant in Kiel on 3 May 2019 after a fire."
LETTER = "Marlowe Chemicals hired three hundred people in Bristol in June 2018."
SUMMARY = "A fire in May 2019 led Corvus Electronics to close its plant in Kiel, the report says."
ANSWER = "Corvus left Kiel."


def chain(**options):
    """Two retrieved documents, a summary of one of them, an answer made from the summary."""
    return [
        Step("r", "search", 1, documents=(document(REPORT, "report"), document(LETTER, "letter"))),
        Step("s", "model", 2, (f"Summarise this.\n\n{REPORT}",), SUMMARY),
        Step("a", "model", 3, (f"Shorten:\n{SUMMARY}",), ANSWER),
    ]


def test_inputs_are_recognised_in_what_calls_were_given():
    process = assemble(reversed(chain()))
    assert process.edges == (("report", "s"), ("s", "a"))
    assert set(process.nodes) == {"report", "s", "a"}


def test_small_changes_do_not_hide_an_input_and_other_texts_do_not_count():
    long = " ".join(f"word{n}" for n in range(100))
    changed = long.replace("word50", "WORD fifty")
    steps = [
        Step("r", start=1, documents=(document(long, "long"), document(LETTER, "letter"))),
        Step("a", start=2, inputs=(changed.upper().replace(" ", "\n  "),), output="All of it."),
    ]
    assert assemble(steps).edges == (("long", "a"),)


@given(st.integers(0, 60))
def test_nine_tenths_of_the_runs_are_needed(lost):
    words = [f"w{n}" for n in range(107)]  # 100 runs of eight
    given_text = " ".join(words[: 107 - lost])
    steps = [
        Step("r", start=1, documents=(document(" ".join(words), "d"),)),
        Step("a", start=2, inputs=(given_text,), output="x y"),
    ]
    assert ("d" in assemble(steps).nodes) == (lost <= 10)


def test_what_came_from_nowhere_is_a_source_of_its_own():
    extra = "The mayor of Kiel said on the phone that the site would be sold to the town."
    steps = chain()
    steps[1] = Step("s", "model", 2, (f"{REPORT}\n{extra}",), SUMMARY)
    process = assemble(steps)
    assert process.nodes["prompt:s"].text == extra
    assert process.nodes["prompt:s"].meta["unattributed"] is True
    assert process.sources("s") == ("report", "prompt:s")


def test_the_question_is_no_source():
    question = "What happened to the plant that Corvus Electronics ran in Kiel for so long?"
    steps = chain()
    steps[1] = Step("s", "model", 2, (question, REPORT), SUMMARY)
    assert "prompt:s" in assemble(steps).nodes
    process = assemble(steps, question=question)
    assert "prompt:s" not in process.nodes
    assert process.question == question


def test_links_name_sources_that_the_texts_do_not_show():
    steps = chain()
    steps[2] = Step("a", "model", 3, ("Write it.",), ANSWER, sources=("letter", "s"))
    assert assemble(steps).sources("a") == ("letter", "s")


def test_one_document_fetched_twice_is_one_node():
    steps = [
        Step("r1", start=1, documents=(document(REPORT),)),
        Step("r2", start=2, documents=(document(REPORT),)),
        Step("a", start=3, inputs=(REPORT,), output=ANSWER),
    ]
    assert len(assemble(steps).nodes) == 2


def test_logs_without_texts():
    with pytest.raises(GraphError, match="no call in the log wrote a text"):
        assemble([Step("r", documents=(document(REPORT),))])
    with pytest.raises(GraphError, match="terminal 'z' is no call that wrote a text; the last that did is 'a'"):
        assemble(chain(), terminal="z")
    with pytest.raises(GraphError, match="nothing was generated"):
        assemble([Step("a", output=ANSWER)])


# ---- OpenTelemetry


def genai_message(role, *parts):
    return {"role": role, "parts": [{"type": "text", "content": part} for part in parts]}


def otlp_value(value):
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def otlp(*spans, trace="t1"):
    """Spans as a collector writes them."""
    listed = [
        {
            "traceId": trace,
            "spanId": name,
            "name": name,
            "startTimeUnixNano": str(start),
            "attributes": [{"key": key, "value": otlp_value(value)} for key, value in attributes.items()],
        }
        for start, (name, attributes) in enumerate(spans, start=1_700_000_000_000_000_000)
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": listed}]}]}


OPENINFERENCE = (
    (
        "search",
        {
            "openinference.span.kind": "RETRIEVER",
            "retrieval.documents.0.document.id": "report",
            "retrieval.documents.0.document.content": REPORT,
            "retrieval.documents.1.document.content": LETTER,
        },
    ),
    (
        "summary",
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "You are a careful writer of summaries of long reports, and brief.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.text": f"Summarise:\n{REPORT}",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": SUMMARY,
        },
    ),
    ("answer", {"openinference.span.kind": "LLM", "input.value": f"Shorten: {SUMMARY}", "output.value": ANSWER}),
    ("whole", {"openinference.span.kind": "CHAIN", "input.value": "q", "output.value": ANSWER}),
)
GENAI = (
    ("lookup", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": REPORT}),
    (
        "summary",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [
                    genai_message("system", "You are a careful writer of summaries of long reports, and brief."),
                    genai_message("user", "Summarise what the tool says."),
                    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": REPORT}]},
                ]
            ),
            "gen_ai.output.messages": json.dumps([genai_message("assistant", SUMMARY)]),
        },
    ),
    (
        "answer",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([genai_message("user", f"Shorten: {SUMMARY}")]),
            "gen_ai.output.messages": json.dumps([genai_message("assistant", ANSWER)]),
        },
    ),
)


@pytest.mark.parametrize(("spans", "root"), [(OPENINFERENCE, "report"), (GENAI, "lookup")])
def test_spans_of_both_conventions(tmp_path, spans, root):
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(otlp(*spans)))
    process = Process.from_otel(path)
    assert process.edges == ((root, "summary"), ("summary", "answer"))
    assert process.nodes["answer"].text == ANSWER
    assert [process.stage(node) for node in process.nodes] == [1, 2, 3]


def test_spans_as_the_python_sdk_prints_them(tmp_path):
    lines = [
        json.dumps(
            {
                "name": name,
                "context": {"trace_id": "0xab", "span_id": f"0x{name}", "trace_state": "[]"},
                "start_time": f"2026-12-01T10:00:0{place}.000000Z",
                "attributes": attributes,
                "events": [],
                "links": [],
            }
        )
        for place, (name, attributes) in enumerate(OPENINFERENCE)
    ]
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(lines))
    assert Process.from_otel(path).edges == (("report", "summary"), ("summary", "answer"))


def test_content_in_events_and_structured_values_counts():
    structured = {"arrayValue": {"values": [{"kvlistValue": {"values": [
        {"key": "role", "value": {"stringValue": "user"}}, {"key": "content", "value": {"stringValue": f"Of {REPORT}"}},
    ]}}]}}  # fmt: skip
    trace = otlp(GENAI[0], ("answer", {"gen_ai.operation.name": "chat"}))
    span = trace["resourceSpans"][0]["scopeSpans"][0]["spans"][1]
    span["events"] = [
        {
            "name": "gen_ai.client.inference.operation.details",
            "attributes": [
                {"key": "gen_ai.input.messages", "value": structured},
                {"key": "gen_ai.output.messages", "value": {"stringValue": json.dumps([genai_message("a", ANSWER)])}},
            ],
        }
    ]
    assert Process.from_otel([trace]).edges == (("lookup", "answer"),)


def test_one_of_several_traces_is_chosen():
    both = [otlp(*GENAI), otlp(*OPENINFERENCE, trace="t2")]
    with pytest.raises(ValueError, match=r"holds 2 traces \(t1, t2\): say which"):
        Process.from_otel(both)
    assert Process.from_otel(both, trace="t2").roots == ("report",)
    with pytest.raises(ValueError, match="has no trace 't3'; it has t1, t2"):
        Process.from_otel(both, trace="t3")


def test_spans_without_content():
    silent = otlp(("answer", {"gen_ai.operation.name": "chat"}))
    with pytest.raises(GraphError, match="no call in the log wrote a text"):
        Process.from_otel([silent])
    with pytest.raises(ValueError, match="spans holds no spans"):
        Process.from_otel([{"resourceSpans": []}])


# ---- LangChain


class Shelf(BaseRetriever):
    """A retriever that always brings the same."""

    def _get_relevant_documents(self, query, *, run_manager):
        return [LangChainDocument(page_content=REPORT, id="report"), LangChainDocument(page_content=LETTER)]


@tool
def phone(number: str) -> str:
    """Ask somebody."""
    return f"On {number} the mayor said that the plant would become a museum of tools."


def pipeline(question, config):
    model = FakeListChatModel(responses=[SUMMARY, ANSWER])
    found = Shelf().invoke(question, config)
    told = phone.invoke({"number": "110"}, config)
    rules = SystemMessage("You are a careful writer of summaries of long reports, and brief.")
    summary = model.invoke([rules, HumanMessage(f"Summarise:\n{found[0].page_content}\n{told}")], config)
    return model.invoke([HumanMessage(f"Shorten: {summary.content}")], config)


@pytest.fixture
def runs():
    callback = ProcessCallback()
    RunnableLambda(pipeline).invoke("What happened?", {"callbacks": [callback]})
    return callback


def test_a_callback_sees_a_pipeline(runs):
    process = runs.process(question="What happened?")
    texts = {name: node.text for name, node in process.nodes.items()}
    final = process.terminal
    (summary,) = process.sources(final)
    assert (texts[final], texts[summary]) == (ANSWER, SUMMARY)
    assert sorted(texts[source] for source in process.sources(summary)) == sorted([REPORT, phone.invoke("110")])
    assert LETTER not in texts.values()


def test_exported_runs_give_the_same_process(runs, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, runs.runs)))
    assert Process.from_langchain(path).digest() == runs.process().digest()
    whole = {**runs.runs[0], "child_runs": runs.runs[1:]}
    path.write_text(json.dumps(whole))
    assert Process.from_langchain(path).digest() == runs.process().digest()


def test_runs_in_the_form_of_other_clients():
    found = {"output": [{"page_content": REPORT, "metadata": {"id": 7}}]}
    flat = {"prompts": [f"System: Be brief and never say more than you must.\nHuman: Of {REPORT}"]}
    messages = [
        {"role": "system", "content": "x" * 50},
        {"role": "user", "content": [{"type": "text", "text": SUMMARY}]},
    ]
    choices = [{"message": {"role": "assistant", "content": ANSWER}}]
    generations = [[{"text": SUMMARY}]]
    runs = [
        {"id": "r", "run_type": "retriever", "start_time": 1, "outputs": found},
        {"id": "s", "run_type": "llm", "start_time": 2, "inputs": flat, "outputs": {"generations": generations}},
        {
            "id": "a",
            "run_type": "llm",
            "start_time": 3,
            "inputs": {"messages": messages},
            "outputs": {"choices": choices},
        },
    ]
    process = Process.from_langchain(runs)
    assert process.edges == (("7", "s"), ("s", "a"))


def test_faults_of_runs():
    with pytest.raises(ValueError, match="runs holds no runs"):
        Process.from_langchain([{"name": "x"}])
    two = [{"id": "a", "run_type": "llm", "trace_id": "t1"}, {"id": "b", "run_type": "llm", "trace_id": "t2"}]
    with pytest.raises(ValueError, match=r"holds 2 traces \(t1, t2\): say which"):
        Process.from_langchain(two)
    with pytest.raises(ValueError, match="has no trace 't3'"):
        Process.from_langchain(two, trace="t3")
    with pytest.raises(GraphError, match="no call in the log wrote a text"):
        Process.from_langchain(two, trace="t1")
