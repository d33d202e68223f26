"""Data of an earlier version, written as that version wrote it, after the upgrade that a gateway does at its start."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import subprocess
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from typer.testing import CliRunner

from alembic import command
from app.cli import app
from app.tenants.repository import Batch, Counts, Repository, UsageKey, open_database
from app.tenants.service import Tenants
from app.tenants.terms import Terms
from tests.app import databases
from tests.app.tenants.test_migrations import _alembic

KEY, SECRET = f"sk-pl-{'5' * 64}", "an old secret"
DAY = date(2026, 1, 31)


def write_as_0001(connection: Connection) -> None:
    command.upgrade(_alembic(connection), "0001")
    then = datetime(2026, 1, 1, tzinfo=UTC)
    digest = hmac.digest(SECRET.encode(), KEY.encode(), hashlib.sha256)
    tenant = "INSERT INTO tenants (id, name, created_at) VALUES ('tn_1', 'acme', :then)"
    connection.execute(text(tenant), {"then": then})
    columns = "id, tenant_id, name, prefix, digest, created_at"
    key = f"INSERT INTO api_keys ({columns}) VALUES ('key_1', 'tn_1', 'laptop', 'sk-pl-555555', :digest, :then)"  # noqa: S608
    connection.execute(text(key), {"then": then, "digest": digest})
    counts = "requests, prompt, completion, drafted, verified, accepted, steps"
    usage = f"INSERT INTO usage (tenant_id, model, day, {counts}) VALUES ('tn_1', 'm', :day, 1, 2, 3, 4, 5, 6, 7)"  # noqa: S608
    connection.execute(text(usage), {"day": DAY})


async def test_tenants_keys_and_usage_of_the_first_schema_are_all_there(database_url: str) -> None:
    repository = Repository(open_database(database_url))
    async with repository._database.begin() as connection:
        await connection.run_sync(write_as_0001)
    await repository.upgrade()

    tenants = Tenants(repository, secret=SECRET, cache_s=0, clock=lambda: 0.0)
    found = await tenants.authenticate(KEY)
    assert found is not None
    assert (found.name, found.terms) == ("acme", Terms())
    await repository.add_usage({UsageKey("tn_1", "m", DAY): Counts(1, 1, 1, 1, 1, 1, 1)}, Batch("w", 1, DAY))
    (row,) = await repository.usage(tenant="acme")
    assert (row.day, row.counts) == (DAY, Counts(2, 3, 4, 5, 6, 7, 8))
    assert (await tenants.set_terms("acme", Terms(weight=2))).terms.weight == 2
    await repository.close()


async def filled(url: str) -> str:
    """Gives a key of the tenant in it."""
    repository = Repository(open_database(url))
    await repository.upgrade()
    tenants = Tenants(repository, secret=SECRET, cache_s=0, clock=lambda: 0.0)
    key = await tenants.create_key("acme", "")
    owner = await tenants.authenticate(key)
    assert owner is not None
    await repository.add_usage({UsageKey(owner.id, "m", DAY): Counts(completion=9)}, Batch("w", 1, DAY))
    await repository.close()
    return key


async def check(url: str, key: str) -> None:
    repository = Repository(open_database(url))
    await repository.upgrade()
    assert await Tenants(repository, secret=SECRET, cache_s=0, clock=lambda: 0.0).authenticate(key) is not None
    assert [row.counts.completion for row in await repository.usage()] == [9]
    await repository.close()


async def test_a_backup_of_sqlite_is_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/live.db"
    monkeypatch.setenv("PACELINE_DATABASE_URL", url)
    key = await filled(url)
    copy = tmp_path / "copy.db"
    writer = Repository(open_database(url))  # as a running gateway has it open
    await writer.tenants()
    assert CliRunner().invoke(app, ["backup", str(copy)]).exit_code == 0
    assert CliRunner().invoke(app, ["backup", str(copy)]).exit_code == 2, "never over another"
    await writer.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    await check(f"sqlite+aiosqlite:///{copy}", key)


@pytest.fixture
def two(postgres: databases.Server) -> tuple[str, str]:
    return postgres.new_database(), postgres.new_database()


async def test_a_dump_of_postgresql_comes_back(two: tuple[str, str], tmp_path: Path) -> None:
    """By the commands of docs/operations.md."""
    where = databases.binaries()
    assert where is not None
    if shutil.which("pg_dump", path=str(where)) is None:
        pytest.skip("pg_dump isn't installed")
    full, empty = two
    key = await filled(full)
    dump = tmp_path / "paceline.dump"
    source, goal = (url.replace("+asyncpg", "") for url in (full, empty))
    subprocess.run([where / "pg_dump", "--format=custom", f"--file={dump}", source], check=True)  # noqa: S603, ASYNC221
    subprocess.run([where / "pg_restore", "--no-owner", f"--dbname={goal}", dump], check=True)  # noqa: S603, ASYNC221
    await check(empty, key)
