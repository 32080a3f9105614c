"""One thread a test process, so that results do not depend on the cores; a real Chromium; a chat server on loopback."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    switches = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=[*switches.split(), "--no-first-run"]
        )
        yield browser
        browser.close()


class ChatServer(ThreadingHTTPServer):
    """Answers in the OpenAI format with the text, or the log-probabilities by token, that a function gives.

    Args:
        answer: From a request's body to either; ``None`` for an error.
    """

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        said = self.server.answer(body)
        raw = json.dumps({"error": {"message": "down"}} if said is None else _completion(said)).encode()
        self.send_response(500 if said is None else 200)
        headers = {"Content-Type": "application/json", "retry-after-ms": "1", "Content-Length": str(len(raw))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args):
        return


def _completion(said):
    scores = said if isinstance(said, dict) else {}
    text = max(scores, key=scores.get) if scores else said
    top = [{"token": token, "logprob": score, "bytes": None} for token, score in scores.items()]
    logprobs = {"content": [{**choice, "top_logprobs": top} for choice in top if choice["token"] == text]}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs if scores else None}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


@pytest.fixture
def chat_server():
    """Starts chat servers on loopback, from a function of the request."""
    servers = []

    def start(answer):
        servers.append(ChatServer(answer))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
