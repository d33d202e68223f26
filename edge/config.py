"""The device's settings: PACELINE_* in the environment or in `.env`; the command line goes before both."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from edge.address import is_loopback
from edge.budget import Allowed
from edge.models import DRAFT_NAME, default_directory
from edge.pacing import LEAST_SURVIVAL
from edge.protocol.frames import Policy

DrafterKind = Literal["llama", "mlc", "ngram", "none"]
Mode = Literal["full", "redacted", "draft_only", "local"]


class DeviceSettings(BaseSettings):
    """Every setting of `paceline-edge`; .env.example explains each."""

    model_config = SettingsConfigDict(
        env_prefix="PACELINE_", env_file=".env", env_ignore_empty=True, extra="ignore", protected_namespaces=()
    )

    url: str = "http://127.0.0.1:8000"
    api_key: SecretStr = SecretStr("")
    data_dir: Path = Path("paceline-data")
    model: str = ""
    """The target's id; empty: the first that the drafter's vocabulary fits."""
    model_dir: Path = Field(default_factory=default_directory)
    drafter: DrafterKind = "llama"
    draft_model: str = DRAFT_NAME
    target_tokenizer: str = ""
    """A GGUF with the target's tokenizer, for a draft model that has another; empty: it has the same."""
    mlc_library: str = ""
    """Drafter `mlc`: what `mlc_llm compile` made of the folder `draft_model`."""
    mlc_device: str = "auto"
    draft_threads: int = Field(default=1, ge=1)
    draft_context: int = Field(default=2048, ge=128)
    draft_sampling: Literal["coupled", "top1"] = "coupled"
    policy: Policy | None = None
    """None: the gateway's default."""
    draft_rate: float | None = Field(default=None, ge=0)
    """Tokens drafted a second at most, all streams together; None: as many as help, 0: none."""
    draft_rate_on_battery: float | None = Field(default=None, ge=0)
    """The same on battery. None: as without."""
    draft_celsius: float | None = None
    """A device hotter than this doesn't draft. None: it may get as hot as it will."""
    allow_plain: bool = False
    """Whether a gateway outside this machine may be reached without TLS."""
    draft_length: int | None = Field(default=None, ge=1, le=64)
    """Tokens a round of policy `sync`; None: 4."""
    draft_survival: float = Field(default=LEAST_SURVIVAL, ge=0, le=1)
    """Drafting pauses when the next token's chance to become output is lower."""
    privacy: Mode = "full"
    padding: bool = False
    """Whether messages to and from the gateway are filled up and sent at ticks."""
    redact_names: bool = True
    """In privacy mode `redacted`: names and addresses too, which no checksum confirms."""
    restore_in_code: bool = True
    """False: in fenced code blocks of an answer placeholders stay."""
    state_dir: Path = Path("~/.local/state/paceline")
    disclosure_log: bool = True

    serve_key: SecretStr = SecretStr("")
    """What clients of `paceline-edge serve` must send as their API key; empty: nothing, and loopback only."""
    draft_streams: int = Field(default=2, ge=1, le=64)
    """Answers that a llama.cpp drafter drafts for at a time; others go on without drafts."""

    def key(self) -> str:
        """The API key; without one, the key that a gateway on this machine wrote on its first start; else empty."""
        if key := self.api_key.get_secret_value():
            return key
        written = self.data_dir / "initial-key"
        if is_loopback(gateway_url(self.url)) and written.is_file():
            return written.read_text(encoding="utf-8").strip()
        return ""

    def budget(self) -> Allowed:
        """What this device may draft."""
        return Allowed(self.draft_rate, self.draft_rate_on_battery, self.draft_celsius)

    def disclosures(self) -> Path:
        """The disclosure log's file."""
        return self.state_dir.expanduser() / "disclosures.jsonl"


def gateway_url(url: str) -> str:
    """The gateway's HTTP root, whichever of its addresses was typed. Raises ValueError when it can't be one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "http", "https": "https", "ws": "http", "wss": "https"}.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ValueError(f"{url!r} is not the address of a gateway; they look like http://127.0.0.1:8000")
    path = parts.path.rstrip("/").removesuffix("/verify").removesuffix("/v1")
    return f"{scheme}://{parts.netloc}{path}"
