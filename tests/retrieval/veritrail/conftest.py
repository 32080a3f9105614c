"""A chat server of OpenAI form on loopback, and a model behind it that recognises a statement it has read."""

import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

SECRET = "sk-veritrail-secret"


def completion(content, *, finish="stop", logprobs=None):
    """Body of a good answer."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": content},
        "logprobs": {"content": logprobs} if logprobs else None,
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def recognised(body):
    """What a literal-minded model answers: a sentence that repeats the claim is evidence for it, and supports it."""
    question = body["messages"][-1]["content"]
    claim = re.search(r"<claim>(.*)</claim>", question)[1]
    lines = re.findall(r"^\[(S\d+)\] (.*)$", question, re.MULTILINE)
    same = [number for number, text in lines if text == claim]
    if "<texts>" in question:
        return {"ids": same, "summary": claim if same else ""}
    verdict = "supported" if same else "unsupported"
    return {"reasoning": f"{len(same)} sentences say so.", "verdict": verdict, "subclaims": [], "ids": same}


def well(body):
    """The entry of a server that works."""
    return 200, {}, completion(json.dumps(recognised(body)))


class ChatServer:
    """Answers every request by a function of its body to (status, headers, body); keeps what it was asked."""

    def __init__(self, answer, latency):
        self.requests, self.headers, self.failures = [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                try:
                    time.sleep(latency)
                    status, headers, said = answer(body)
                except Exception as error:
                    outer.failures.append(error)
                    raise
                raw = said if isinstance(said, bytes) else json.dumps(said).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Type": "application/json", **headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    return  # the client gave up waiting, or was killed

            def log_message(self, *args):
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def asked(self):
        """How often each conversation was asked."""
        return Counter(json.dumps(request["messages"]) for request in self.requests)

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve(monkeypatch):
    """Starts servers; they work well unless told otherwise."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    servers = []

    def start(answer=well, *, latency=0.0):
        servers.append(ChatServer(answer, latency))
        return servers[-1]

    # What tests need beside the fixture: modules of this folder cannot import each other.
    start.well, start.recognised, start.completion, start.secret = well, recognised, completion, SECRET
    yield start
    for server in servers:
        server.close()
        assert not server.failures, server.failures
