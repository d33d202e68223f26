"""What a gateway owes when it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.scripted import ScriptedEngine
from app.main import build, running
from app.tenants.repository import Repository, open_database
from edge.protocol.frames import Sampling
from tests.app.engine.requests import request
from tests.app.serving import MODEL, IsolatedSettings


async def test_usage_is_written_even_if_the_engine_cannot_stop(tmp_path: Path) -> None:
    """Found by the simulation: what was counted since the last flush was lost then, and the flushing went on."""

    class Stuck(ScriptedEngine):
        async def stop(self) -> None:
            await super().stop()
            raise RuntimeError("the driver is gone")

    settings = IsolatedSettings(data_dir=tmp_path)
    gateway = build(settings, Stuck(model_id=MODEL))
    life = running(gateway)
    await life.__aenter__()
    tenant = await gateway.tenants.authenticate((tmp_path / "initial-key").read_text().strip())
    assert tenant is not None
    wanted = request((1, 2, 3), max_tokens=5, tenant=tenant.id, sampling=Sampling(temperature=0, seed=0))
    (generation,) = gateway.submit(tenant, [wanted])
    assert [event async for event in generation.events()]
    with pytest.raises(RuntimeError, match="driver"):
        await life.__aexit__(None, None, None)
    repository = Repository(open_database(settings.database))
    assert [row.counts.completion for row in await repository.usage()] == [5]
    await repository.close()
