"""Chat endpoints against a real HTTP server on loopback that misbehaves in every way the field has seen."""

import json
import math
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import BaseModel

from gnomon.models.call_cache import CallBudget, CallCache, connection
from gnomon.models.chat import Missing, OutOfBudget, Reply, ScriptedChat
from gnomon.models.endpoint import EndpointChat, Prices, chat_model

SECRET = "sk-loopback-secret"
QUESTION = [{"role": "user", "content": "Is the sky blue?"}]


class Verdict(BaseModel):
    answer: str
    confidence: float


def completion(content, *, finish="stop", logprobs=None, **message):
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": content, **message},
        "logprobs": {"content": logprobs} if logprobs else None,
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


class Server:
    """Answers from a script: each entry is (status, headers, body) or a function of the request; the last repeats."""

    def __init__(self, *script):
        self.requests, self.headers, self.times = [], [], []
        self._script = list(script)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer.times.append(time.monotonic())
                entry = outer._script.pop(0) if len(outer._script) > 1 else outer._script[0]
                status, headers, answer = entry(body) if callable(entry) else entry
                raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                try:
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    return  # the client gave up waiting, as a timeout test wants

            def log_message(self, *args):
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    servers = []

    def start(*script):
        servers.append(Server(*script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def only(answers):
    ((answer,),) = answers
    return answer


def test_a_good_reply_arrives_with_its_tokens(serve):
    server = serve((200, {}, completion("Yes.")))
    reply = only(EndpointChat("m", server.url).complete([QUESTION]))
    assert reply == Reply("Yes.", tokens_in=100, tokens_out=10)
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


def test_429_is_retried_after_the_time_the_server_asks_for(serve):
    server = serve((429, {"Retry-After": "0.3"}, {"error": {"message": "slow down"}}), (200, {}, completion("Yes.")))
    assert only(EndpointChat("m", server.url).complete([QUESTION])).text == "Yes."
    assert server.times[1] - server.times[0] >= 0.3


def test_500_is_retried_and_then_missing_with_the_reason(serve):
    server = serve((500, {"retry-after-ms": "5"}, {"error": {"message": "boom"}}))
    answer = only(EndpointChat("m", server.url, retries=2).complete([QUESTION]))
    assert isinstance(answer, Missing)
    assert "InternalServerError" in answer.reason
    assert len(server.requests) == 3


def test_a_timeout_is_missing(serve):
    def stall(body):
        time.sleep(0.5)
        return 200, {}, completion("late")

    server = serve(stall)
    answer = only(EndpointChat("m", server.url, timeout=0.1, retries=0).complete([QUESTION]))
    assert isinstance(answer, Missing)
    assert "Timeout" in answer.reason


def test_a_server_that_is_not_there_is_missing():
    answer = only(EndpointChat("m", "http://127.0.0.1:9/v1", retries=0).complete([QUESTION]))
    assert isinstance(answer, Missing)
    assert "Connection" in answer.reason


@pytest.mark.parametrize("body", [b'{"id": "x", "choices": [{"mess', b"<html>gateway</html>", b'{"choices": []}'])
def test_a_body_that_cannot_be_read_is_missing(serve, body):
    server = serve((200, {}, body))
    assert isinstance(only(EndpointChat("m", server.url, retries=0).complete([QUESTION])), Missing)


def test_json_cut_off_by_the_token_limit_is_asked_for_again(serve):
    cut, whole = '{"answer": "yes", "confi', '{"answer": "yes", "confidence": 0.9}'
    server = serve((200, {}, completion(cut, finish="length")), (200, {}, completion(whole)))
    reply = only(EndpointChat("m", server.url).complete([QUESTION], schema=Verdict))
    assert reply.parsed == Verdict(answer="yes", confidence=0.9)
    assert len(server.requests) == 2


def test_json_that_never_fits_the_schema_is_missing_not_a_value(serve):
    server = serve((200, {}, completion('{"answer": "yes", "confidence": "very"}')))
    answer = only(EndpointChat("m", server.url, retries=1).complete([QUESTION], schema=Verdict))
    assert isinstance(answer, Missing)
    assert "confidence" in answer.reason


def test_json_mode_is_negotiated_down_once_and_remembered(serve):
    def picky(body):
        if "response_format" in body:
            return 400, {}, {"error": {"message": f"{body['response_format']['type']} is not supported"}}
        return 200, {}, completion('Here you are: ```json\n{"answer": "no", "confidence": 1}\n```')

    server = serve(picky)
    chat = EndpointChat("m", server.url)
    assert only(chat.complete([QUESTION], schema=Verdict)).parsed == Verdict(answer="no", confidence=1.0)
    modes = [request.get("response_format", {}).get("type") for request in server.requests]
    assert modes == ["json_schema", "json_object", None]
    assert "schema" in server.requests[-1]["messages"][-1]["content"]
    chat.complete([QUESTION], schema=Verdict)
    assert len(server.requests) == 4


def test_a_bad_request_without_schema_is_missing_with_the_servers_words(serve):
    server = serve((400, {}, {"error": {"message": "context too long"}}))
    assert "context too long" in only(EndpointChat("m", server.url).complete([QUESTION])).reason


def test_reasoning_without_an_answer_is_an_error(serve):
    server = serve((200, {}, completion("", finish="length", reasoning_content="Let me think...")))
    answer = only(EndpointChat("m", server.url).complete([QUESTION]))
    assert answer == Missing("15 characters of reasoning and no answer; raise max_tokens")


def test_choices_are_read_off_the_top_tokens(serve):
    top = [
        {"token": " A", "logprob": math.log(0.6), "bytes": None},
        {"token": "A", "logprob": math.log(0.1), "bytes": None},
        {"token": "B", "logprob": math.log(0.1), "bytes": None},
    ]
    token = {"token": " A", "logprob": math.log(0.6), "bytes": None, "top_logprobs": top}
    server = serve((200, {}, completion("A", logprobs=[token])))
    (scores,) = EndpointChat("m", server.url).choice_logprobs([QUESTION], ["A", "B"])
    assert scores.method == "logprobs"
    assert math.exp(scores.logprobs["A"]) == pytest.approx(0.7 / 0.8)


def test_choices_are_sampled_where_no_logprobs_are_offered(serve):
    answers = iter(["A"] + ["A"] * 8 + ["B"] * 2)
    server = serve(lambda body: (200, {}, completion(next(answers))))
    (scores,) = EndpointChat("m", server.url, sampled=10).choice_logprobs([QUESTION], ["A", "B"])
    assert (scores.method, scores.samples) == ("sampled", 10)
    assert math.exp(scores.logprobs["A"]) == pytest.approx(8.5 / 11)
    assert server.requests[1]["temperature"] == 0.7


def test_a_chat_server_does_not_score_given_text(serve):
    server = serve((200, {}, completion("Yes.")))
    assert isinstance(EndpointChat("m", server.url).sequence_logprobs([QUESTION], ["Yes."])[0], Missing)


def test_a_call_is_paid_for_once(serve, tmp_path):
    cache = CallCache(tmp_path / "calls.sqlite3")
    server = serve(lambda body: (200, {}, completion(f"reply {len(server.requests)}")))
    first = EndpointChat("m", server.url, cache=cache).complete([QUESTION], n=2, temperature=0.7)
    again = EndpointChat("m", server.url, cache=cache).complete([QUESTION], n=3, temperature=0.7)
    assert len(server.requests) == 3
    assert [reply.text for reply in again[0][:2]] == [reply.text for reply in first[0]]
    assert [reply.cached for reply in again[0]] == [True, True, False]


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"prompt_version": "2"}, {"temperature": 0.5}, {"question": "Is grass green?"}]
)
def test_everything_a_reply_depends_on_is_in_its_key(serve, tmp_path, change):
    cache = CallCache(tmp_path / "calls.sqlite3")
    server = serve((200, {}, completion("Yes.")))
    EndpointChat("m", server.url, cache=cache).complete([QUESTION])
    chat = EndpointChat(
        change.get("model", "m"), server.url, cache=cache, prompt_version=change.get("prompt_version", "1")
    )
    asked = [{"role": "user", "content": change.get("question", QUESTION[0]["content"])}]
    chat.complete([asked], temperature=change.get("temperature", 0.0))
    assert len(server.requests) == 2


def test_failures_are_not_cached(serve, tmp_path):
    cache = CallCache(tmp_path / "calls.sqlite3")
    server = serve((500, {}, {"error": {"message": "boom"}}), (200, {}, completion("Yes.")))
    chat = EndpointChat("m", server.url, cache=cache, retries=0)
    assert isinstance(only(chat.complete([QUESTION])), Missing)
    assert only(chat.complete([QUESTION])).text == "Yes."


def test_a_reply_is_stored_while_others_of_its_batch_are_still_in_flight(serve, tmp_path):
    cache = CallCache(tmp_path / "calls.sqlite3")

    def after_the_other_is_stored(body):
        if body["messages"][-1]["content"] == "slow":
            for _ in range(500):
                if stored_replies(cache.path):
                    return 200, {}, completion("Yes.")
                time.sleep(0.01)
            return 500, {}, {"error": {"message": "nothing was stored in five seconds"}}
        return 200, {}, completion("Yes.")

    server = serve(after_the_other_is_stored)
    questions = [[{"role": "user", "content": speed}] for speed in ("slow", "fast")]
    answers = EndpointChat("m", server.url, cache=cache, retries=0).complete(questions)
    assert [reply.text for (reply,) in answers] == ["Yes.", "Yes."]
    assert stored_replies(cache.path) == 2


def stored_replies(path):
    with connection(path) as database:
        return database.execute("select count(*) from replies").fetchone()[0]


def test_an_interrupt_ends_the_batch_and_keeps_what_was_answered(serve, tmp_path):
    def interrupting(body):
        if len(server.requests) == 4:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.02)
        return 200, {}, completion("Yes.")

    server = serve(interrupting)
    cache = CallCache(tmp_path / "calls.sqlite3")
    questions = [[{"role": "user", "content": str(number)}] for number in range(100)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            EndpointChat("m", server.url, cache=cache, concurrency=2).complete(questions)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 2 <= stored_replies(cache.path) < 50
    assert len(server.requests) < 50


def test_replies_come_in_the_order_of_the_questions_whatever_the_order_of_arrival(serve):
    def later_first(body):
        number = int(body["messages"][-1]["content"])
        time.sleep(0.02 * (4 - number))
        return 200, {}, completion(str(number))

    questions = [[{"role": "user", "content": str(number)}] for number in range(4)]
    answers = EndpointChat("m", serve(later_first).url).complete(questions)
    assert [reply.text for (reply,) in answers] == ["0", "1", "2", "3"]


def test_stored_replies_are_found_together(tmp_path):
    cache = CallCache(tmp_path / "calls.sqlite3")
    with cache.opened() as replies:
        for number in (1, 700):
            replies.store(str(number), {"text": number})
        replies.store("1", {"text": "a second reply to one call"})
        assert replies.find([str(number) for number in range(1_200)]) == {"1": {"text": 1}, "700": {"text": 700}}


def test_parsed_replies_come_back_from_the_cache_parsed(serve, tmp_path):
    cache = CallCache(tmp_path / "calls.sqlite3")
    server = serve((200, {}, completion('{"answer": "yes", "confidence": 0.9}')))
    for _ in range(2):
        reply = only(EndpointChat("m", server.url, cache=cache).complete([QUESTION], schema=Verdict))
        assert reply.parsed == Verdict(answer="yes", confidence=0.9)
    assert len(server.requests) == 1


def test_the_budget_of_calls_holds_over_a_batch_and_its_price_is_counted(serve, tmp_path):
    budget = CallBudget(tmp_path / "calls.sqlite3", "run-1", max_calls=3)
    server = serve((200, {}, completion("Yes.")))
    chat = EndpointChat("m", server.url, budget=budget, prices=Prices(tokens_in=1.0, tokens_out=10.0))
    questions = [[{"role": "user", "content": str(number)}] for number in range(5)]
    answers = [answer for (answer,) in chat.complete(questions)]
    assert sum(isinstance(answer, Reply) for answer in answers) == 3
    assert {answer for answer in answers if isinstance(answer, Missing)} == {OutOfBudget("budget of 3 calls is spent")}
    assert len(server.requests) == 3
    assert budget.spent() == (3, pytest.approx(3 * 200e-6))


def test_the_budget_of_money_stops_the_next_call(serve, tmp_path):
    budget = CallBudget(tmp_path / "calls.sqlite3", "run-1", max_cost=0.0001)
    server = serve((200, {}, completion("Yes.")))
    chat = EndpointChat("m", server.url, budget=budget, prices=Prices(tokens_in=1.0))
    assert isinstance(only(chat.complete([QUESTION])), Reply)
    assert "is spent" in only(chat.complete([QUESTION])).reason


def test_calls_are_spaced_by_the_rate_limit(serve):
    server = serve((200, {}, completion("Yes.")))
    questions = [[{"role": "user", "content": str(number)}] for number in range(4)]
    begun = time.monotonic()
    EndpointChat("m", server.url, calls_per_minute=1200).complete(questions)
    assert max(server.times) - begun >= 3 * 60 / 1200


def test_the_key_is_nowhere_but_in_the_header(serve, tmp_path, caplog):
    caplog.set_level("DEBUG")
    path = tmp_path / "calls.sqlite3"
    server = serve((200, {}, completion("Yes.")))
    chat = EndpointChat("m", server.url, cache=CallCache(path))
    chat.complete([QUESTION])
    shown = f"{chat!r} {vars(chat)} {chat.identity} {caplog.text}"
    assert SECRET not in shown
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.iterdir())


def test_calls_work_inside_a_running_event_loop(serve):
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    server = serve((200, {}, completion("Yes.")))

    async def cell_of_a_notebook():
        return EndpointChat("m", server.url).complete([QUESTION])

    # In a thread of its own: another test of this process may have left an event loop running in the main one.
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(asyncio.run, cell_of_a_notebook()).result()
    assert only(answer).text == "Yes."


def test_a_model_and_an_address_make_an_endpoint():
    assert repr(chat_model("qwen3@http://127.0.0.1:8000/v1")) == "EndpointChat('qwen3', 'http://127.0.0.1:8000/v1')"


def test_a_script_replies_and_scores():
    chat = ScriptedChat(
        "parrot",
        reply=lambda conversation: conversation[-1]["content"],
        score=lambda conversation, choices: {choice: -float(len(choice)) for choice in choices},
    )
    assert only(chat.complete([QUESTION])).text == "Is the sky blue?"
    (scores,) = chat.choice_logprobs([QUESTION], ["A", "BB"])
    assert scores.logprobs["A"] - scores.logprobs["BB"] == pytest.approx(1.0)
    assert chat.sequence_logprobs([QUESTION], ["one", "three"]) == [(-3.0, -5.0)]


@pytest.mark.parametrize(("n", "temperature"), [(0, 0.7), (2, 0.0)])
def test_impossible_sampling_is_refused(n, temperature):
    with pytest.raises(ValueError, match="n must be >= 1, and 1 at temperature 0"):
        ScriptedChat("s", reply=lambda conversation: "x").complete([QUESTION], n=n, temperature=temperature)


@pytest.mark.parametrize("choices", [["A"], ["A", "A"]])
def test_choices_must_differ(choices):
    with pytest.raises(ValueError, match="choices must be at least two different answers"):
        ScriptedChat("s").choice_logprobs([QUESTION], choices)
