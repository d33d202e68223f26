"""GET /v1/drafter: the draft model that a browser may fetch, since a page can't have it from anywhere else.

    /v1/drafter          what it is: size, digest of its metadata, and the fingerprint of its vocabulary
    /v1/drafter/model    the GGUF, whole or by ranges; its address carries the digest, so a browser may keep it for good

A draft whose fingerprint isn't the target's would mean other texts by the same ids: the page compares before it loads.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from app.api.deps import GatewayDep, TenantDep
from app.api.openapi import FAILURES
from app.errors import NotFound

router = APIRouter(responses=FAILURES)

_KEEP: Final = "private, max-age=31536000, immutable"
"""Private: only who has a key may have it, so no shared cache keeps it."""


@router.get("/v1/drafter")
async def about(gateway: GatewayDep, tenant: TenantDep) -> dict[str, Any]:
    """Raises NotFound if this gateway has no draft model for browsers."""
    path = _present(gateway.settings.draft_path)
    version = _version(path)
    return {
        "id": path.stem,
        "bytes": path.stat().st_size,
        "url": f"/v1/drafter/model?v={version}",
        "fingerprint": await asyncio.to_thread(_fingerprint, path, version),
    }


@router.get("/v1/drafter/model")
async def model(gateway: GatewayDep, tenant: TenantDep) -> Response:
    path = _present(gateway.settings.draft_path)
    return FileResponse(path, media_type="application/octet-stream", headers={"Cache-Control": _KEEP})


def _present(path: Path) -> Path:
    if not path.is_file():
        raise NotFound("This gateway has no draft model for browsers: PACELINE_DRAFT_MODEL names it.")
    return path


def _version(path: Path) -> str:
    """Changes when the file does; hashing a large file for every page would cost more than it tells."""
    found = path.stat()
    return hashlib.sha256(f"{path.name} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]


@lru_cache(maxsize=4)
def _fingerprint(path: Path, version: str) -> str:
    """Of the file's vocabulary; "" where llama.cpp is not installed, so nobody can say. `version`: for the cache."""
    try:
        from app.engine.llama_cpp import open_vocabulary
    except ImportError:
        return ""
    with open_vocabulary(path) as vocabulary:
        return vocabulary.fingerprint
