"""``python -m benchmarks NAME`` prints one JSON line a benchmark; without a name it runs all of them."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import sys

import benchmarks
from gnomon.names import nearest


def names() -> list[str]:
    """Benchmarks by the names of their files."""
    return sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")
    )


def machine() -> str:
    """Processor, cores and Python, so that a line says where it was measured."""
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all."""
    known = names()
    chosen = [argument.replace("-", "_") for argument in arguments] or known
    for name in chosen:
        if name not in known:
            print(f"no benchmark {name!r}{nearest(name, known)}", file=sys.stderr)
            return 2
    for name in chosen:
        result = importlib.import_module(f"benchmarks.{name}").run()
        print(json.dumps({**result, "machine": machine()}), flush=True)
    return 0


if __name__ == "__main__":
    # One thread, set before torch or numpy load: a ratio of two libraries' thread pools measures neither.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
