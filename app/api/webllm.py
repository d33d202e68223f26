"""A model that a browser with WebGPU drafts with, by WebLLM: PACELINE_WEBLLM_DIR, as MLC's compiler leaves it.

    /v1/drafter/webllm                                what it is, with the fingerprint of its vocabulary
    /v1/drafter/webllm/{permit}/resolve/main/{name}   its files: configuration, weights, tokenizer, library

WebLLM fetches by itself and sends no key, so the address of the files carries a permit: only who has a key is told it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from app.api.deps import Gateway, GatewayDep, TenantDep
from app.api.openapi import FAILURES
from app.errors import NotFound

router = APIRouter(responses=FAILURES)

LIBRARY: Final = "model.wasm"
_CONFIG: Final = "mlc-chat-config.json"
_KEEP: Final = "private, max-age=31536000, immutable"


@router.get("/v1/drafter/webllm")
async def about(gateway: GatewayDep, tenant: TenantDep) -> dict[str, Any]:
    """Raises NotFound if this gateway has no such model."""
    folder = _present(gateway)
    version = _version(folder)
    found, ends = await asyncio.to_thread(_vocabulary, folder, version)
    base = f"/v1/drafter/webllm/{_permit(gateway, version)}/resolve/main/"
    return {
        "id": folder.name,
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "url": base,
        "library": base + LIBRARY,
        "fingerprint": found,
        "ends": sorted(ends),
    }


@router.get("/v1/drafter/webllm/{permit}/resolve/main/{name}", include_in_schema=False)
async def file(permit: str, name: str, gateway: GatewayDep) -> Response:
    folder = _present(gateway)
    path = folder / name
    if not hmac.compare_digest(permit, _permit(gateway, _version(folder))) or not _holds(folder, path):
        raise NotFound("There is nothing at this address.")
    return FileResponse(path, headers={"Cache-Control": _KEEP})


def _holds(folder: Path, path: Path) -> bool:
    return path in set(folder.iterdir()) and path.is_file()


def _present(gateway: Gateway) -> Path:
    folder = gateway.settings.webllm_dir
    if folder is None or not all((folder / name).is_file() for name in (_CONFIG, LIBRARY, "tokenizer.json")):
        raise NotFound("This gateway has no model for WebLLM: PACELINE_WEBLLM_DIR names its folder.")
    return folder


def _version(folder: Path) -> str:
    """Changes when the library or the configuration does."""
    stats = [(folder / name).stat() for name in (_CONFIG, LIBRARY)]
    return f"{folder.name} {[(found.st_size, found.st_mtime_ns) for found in stats]}"


def _permit(gateway: Gateway, version: str) -> str:
    secret = gateway.settings.secret.get_secret_value().encode()
    return hmac.new(secret, f"webllm {version}".encode(), hashlib.sha256).hexdigest()[:32]


@lru_cache(maxsize=4)
def _vocabulary(folder: Path, version: str) -> tuple[str, frozenset[int]]:
    """Fingerprint and end ids. `version`: for the cache."""
    from edge.openai.hf_vocabulary import file_fingerprint

    config = json.loads((folder / _CONFIG).read_bytes())
    ends = config.get("eos_token_id", [])
    return file_fingerprint(
        folder / "tokenizer.json", size=config["vocab_size"], ends=ends if isinstance(ends, list) else [ends]
    )
