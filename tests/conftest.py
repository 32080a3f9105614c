"""One thread per test process: the results must not depend on how many cores there are. A real Chromium."""

import os

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
