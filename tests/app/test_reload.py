"""SIGHUP to a real gateway: what can change does, what can't is named, what is wrong changes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2

from tests.faults.processes import gateway, key_of, started, until


async def test_a_reload_takes_what_can_change_and_leaves_the_rest(tmp_path: Path) -> None:
    serving = gateway(tmp_path)
    settings = tmp_path / ".env"
    settings.write_text("PACELINE_SECRET=one\n")
    async with started(serving), httpx2.AsyncClient(base_url=serving.url) as client:
        assert serving.running is not None
        admin = {"authorization": "Bearer opened"}
        assert (await client.get("/admin/tenants", headers=admin)).status_code == 403

        settings.write_text("PACELINE_SECRET=another\nPACELINE_ADMIN_KEY=opened\n")
        serving.running.send_signal(signal.SIGHUP)
        await until(lambda: "reload.done" in serving.said)
        assert (await client.get("/admin/tenants", headers=admin)).status_code == 200
        assert '"need_a_restart": ["secret"]' in serving.said
        key = {"authorization": f"Bearer {key_of(tmp_path / 'data')}"}
        assert (await client.get("/v1/models", headers=key)).status_code == 200, "made under the first secret"

        settings.write_text("PACELINE_HOLD_MS=soon\n")
        serving.running.send_signal(signal.SIGHUP)
        await until(lambda: "reload.refused" in serving.said)
        assert (await client.get("/admin/tenants", headers=admin)).status_code == 200
        assert "opened" not in serving.said
