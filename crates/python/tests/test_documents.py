"""What the documents show runs, word for word, where nothing but the wheel is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import binary

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs/python.md"]


def examples() -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.M | re.S)
        assert blocks, f"{document} shows no Python"
        found += [(f"{document.name}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.fixture(scope="module")
def place() -> Iterator[dict[str, str]]:
    """The environment of a program that finds a server at the usual place."""
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        data = Path(directory, "data")
        data.mkdir()
        # The local socket is there, out of the way of others.
        environment = {**os.environ, "XDG_RUNTIME_DIR": directory}
        environment.pop("PYTHONPATH", None)
        command = [binary(), "serve", str(data), "--state", f"{directory}/state", "--cache", "64M",
                   "--while-stdin"]  # fmt: skip
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert server.stdin and server.stdout and server.stderr
        assert server.stdout.readline().startswith("ready"), server.stderr.read()
        yield environment
        server.stdin.close()
        server.wait()
        server.stdout.close()
        server.stderr.close()


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A clean environment with the wheel alone; without one, this one."""
    wheel = os.environ.get("DAFS_WHEEL")
    if not wheel:
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        python = f"{directory}/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", "--no-index", wheel]
        subprocess.run(install, check=True)
        yield python


@pytest.mark.parametrize(("name", "example"), examples())
def test_what_is_shown_runs(name: str, example: str, place: dict[str, str], bare: str) -> None:
    # What needs more than the wheel says so by its imports.
    needs = re.findall(r"^(?:import|from) (numpy|pandas|torch|fsspec)\b", example, re.M)
    for module in needs:
        pytest.importorskip(module)
    if not needs:
        command, environment = [bare, "-c", example], place
    else:
        command = [sys.executable, "-c", example]
        environment = {**place, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            command, env=environment, cwd=directory, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
