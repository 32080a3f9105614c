"""Names that lead to the hub, against a server on loopback that speaks as the hub does."""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnomon.models.checkpoint import find_checkpoint, weights_id

ASK = (
    "import sys\n"
    "from gnomon.models.checkpoint import find_checkpoint\n"
    "try: print(find_checkpoint(sys.argv[1]).source)\n"
    "except (ValueError, FileNotFoundError) as error: print(type(error).__name__, error)\n"
    "assert 'torch' not in sys.modules, 'naming a model must not load torch'\n"
)


def ask(name, endpoint, home):
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    result = subprocess.run(
        [sys.executable, "-c", ASK, name], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    return result.stdout.strip()


@pytest.fixture(scope="module")
def hub():
    """A hub that answers every question about a repository with `no such repository`, or `gated`, and counts."""
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            gated = "gated" in self.path
            self.send_response(403 if gated else 404)
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_a_hub_that_does_not_answer_is_one_line(tmp_path):
    answer = ask("some-owner/some-model", "http://127.0.0.1:1", tmp_path)
    assert answer == (
        "FileNotFoundError cannot download some-owner/some-model: the hub does not answer and there is no local copy; "
        "give a folder or a .gguf file"
    )


def test_a_hub_that_is_silent_is_given_up_on(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = ask("some-owner/some-model", f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    assert answer.startswith("FileNotFoundError cannot download some-owner/some-model: the hub does not answer")


def test_an_unknown_repository_is_one_line_and_one_question(hub, tmp_path):
    endpoint, asked = hub
    answer = ask("EleutherAI/pythia-71m", endpoint, tmp_path)
    assert answer.startswith(
        "FileNotFoundError the hub has no model 'EleutherAI/pythia-71m' (or it is private); did you"
    )
    assert "EleutherAI/pythia-70m" in answer
    assert len([path for path in asked if "pythia-71m" in path]) == 1


def test_a_gated_repository_says_what_to_do(hub, tmp_path):
    answer = ask("meta/gated-model", hub[0], tmp_path)
    assert answer == (
        "FileNotFoundError meta/gated-model is gated: accept its terms on the hub and set HF_TOKEN; "
        "give a folder or a .gguf file"
    )


def test_a_downloaded_model_is_used_without_asking(hub, tiny_folder, tmp_path):
    endpoint, asked = hub
    before = len(asked)
    repository = tmp_path / "hub" / "models--some-owner--some-model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / ("0" * 40)).symlink_to(tiny_folder)
    assert ask("some-owner/some-model", endpoint, tmp_path) == "hub some-owner/some-model"
    assert len(asked) == before


def test_weights_id_is_twelve_digits_of_the_hash_and_does_not_read_twice(tiny_folder, own_cache):
    identifier = weights_id(tiny_folder)
    assert find_checkpoint(tiny_folder).sha256.startswith(identifier)
    assert len(identifier) == 12
    (record,) = (own_cache / "hashes").iterdir()
    record.write_text(record.read_text().replace(identifier, "0" * 12))  # a remembered hash is taken as it is
    assert weights_id(tiny_folder) == "0" * 12
    (tiny_folder / "model.safetensors").touch()
    assert weights_id(tiny_folder) == identifier
