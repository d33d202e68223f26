"""The gateway's settings: PACELINE_* in the environment or in `.env`; the command line goes before both.

They are built once, by whoever calls `create_app`, and passed down.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url

from edge.models import default_directory
from edge.protocol.frames import Limits, Policy

INSECURE_SECRET = "insecure-development-secret"  # noqa: S105
ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds `alembic/` and `static/`."""


class Settings(BaseSettings):
    """Every setting of `paceline-gateway`; .env.example explains each."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_", env_file=".env", extra="ignore", protected_namespaces=())

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    data_dir: Path = Path("paceline-data")
    database_url: str = ""
    secret: SecretStr = SecretStr(INSECURE_SECRET)
    admin_key: SecretStr = SecretStr("")
    """Opens the operator's page and the admin API; empty: both are closed."""
    origins: str = ""
    """Pages from elsewhere that may open the WebSocket: origins, separated by spaces."""
    static_dir: Path = ROOT / "static"

    engine: Literal["llama_cpp", "vllm", "scripted"] = "llama_cpp"
    model_dir: Path = Field(default_factory=default_directory)
    target_model: str = "SmolLM2-135M-Instruct-F16.gguf"
    """A file in `model_dir`, or a path; for vLLM a folder, or a name on the hub."""
    target_id: str = ""
    """The model's name in the API; empty: the file's name without its ending."""
    draft_model: str = "SmolLM2-135M-Instruct-Q4_1.gguf"
    """A GGUF in `model_dir`, or a path: what a browser may fetch to draft with. Empty: none."""
    webllm_dir: Path | None = None
    """A folder with a model compiled for WebLLM, its library as model.wasm: browsers with WebGPU may draft with it."""
    target_threads: int = Field(default=1, ge=1)
    context: int = Field(default=2048, ge=64)
    """Prompt and output of one stream, tokens."""
    engine_streams: int = Field(default=8, ge=1)
    """Streams in one step of the target."""
    engine_queue: int = Field(default=128, ge=1)
    """Streams that wait for their turn, a tenant alone having half of them; more are told to come back."""
    engine_queue_s: float = Field(default=60.0, gt=0)
    """Expected wait for a turn; who would wait longer is told when to come back."""
    gpu_layers: int = Field(default=0, ge=-1)
    share_prefixes: bool = False
    engine_step_tokens: int = Field(default=252, ge=2)
    """In one step of the target, all streams together."""
    engine_prefill_tokens: int = Field(default=63, ge=1)
    """Of prompts, in a step in which others get tokens."""
    engine_draft_tokens: int = Field(default=8, ge=0)
    """Drafts of one stream that are checked in a step."""
    engine_kv_tokens: int = Field(default=0, ge=0)
    """Of the KV cache, all streams together; 0: each stream's whole context."""
    engine_reserve_tokens: int = Field(default=0, ge=0)
    """Room in the KV cache that a running stream keeps for its further output; 0: for all that it may become."""
    engine_prefill_slowdown: float = Field(default=0.2, ge=0)
    """By what part a long prompt may lengthen the steps of streams that get tokens."""
    tenant_kv_share: float = Field(default=1.0, gt=0, le=1)
    """Part of the KV cache that one tenant's streams may hold together."""
    flash_attention: bool = True
    steady: bool = False
    replicas: int = Field(default=0, ge=0, le=1024)
    """Engines in processes of their own, by Ray; 0: one, in the gateway's process, without Ray."""
    ray_address: str = Field(
        default="", validation_alias=AliasChoices("ray_address", "PACELINE_RAY_ADDRESS", "RAY_ADDRESS")
    )
    """Of a Ray cluster for the replicas; empty: a Ray of our own on this host."""
    replica_cpus: float = Field(default=1.0, ge=0)
    replica_gpus: float | None = Field(default=None, ge=0)
    """What a replica takes of a cluster's node. GPUs, if not set: 1 with vLLM or `gpu_layers`, else 0."""
    vllm_args: str = ""
    """More for vLLM: flags as on its command line, or a JSON object of its engine's arguments."""
    vllm_ahead: bool = False
    """vLLM plans a step while the one before still runs."""
    scripted_step_ms: float = Field(default=30.0, ge=0)

    default_policy: Policy = "auto"
    hold_ms: float = Field(default=1000.0, ge=0, le=60_000)

    frame_bytes: int = Field(default=1 << 20, ge=1024)
    draft_tokens: int = Field(default=64, ge=1)
    socket_streams: int = Field(default=64, ge=1)
    tenant_streams: int = Field(default=512, ge=1)
    """Streams of a tenant that are open, detached, or finished and still resumable."""
    hello_s: float = Field(default=10.0, gt=0)
    idle_s: float = Field(default=120.0, gt=0)
    grace_s: float = Field(default=60.0, ge=0)
    socket_errors: int = Field(default=32, ge=1)
    """Errors that a socket may cause in a burst; one more is allowed each second."""
    ticket_s: float = Field(default=60.0, gt=0)
    body_bytes: int = Field(default=4 << 20, ge=1024)
    body_s: float = Field(default=60.0, gt=0)

    key_cache_s: float = Field(default=30.0, ge=0)
    usage_flush_s: float = Field(default=10.0, gt=0)
    otlp_endpoint: str = ""
    """Where OpenTelemetry spans go; empty: nowhere."""
    metrics_tenants: int = Field(default=50, ge=0)
    """Tenants with labels of their own in /metrics; the rest are `other`."""

    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _check_capacity(self) -> Self:
        if self.engine != "vllm" and self.engine_step_tokens <= self.engine_streams:
            raise ValueError("PACELINE_ENGINE_STEP_TOKENS must exceed PACELINE_ENGINE_STREAMS")
        if 0 < self.engine_kv_tokens < self.context:
            raise ValueError("PACELINE_ENGINE_KV_TOKENS must hold at least PACELINE_CONTEXT")
        return self

    @model_validator(mode="after")
    def _refuse_default_secret(self) -> Self:
        if self.secret.get_secret_value() == INSECURE_SECRET and not self.loopback:
            raise ValueError(
                f"PACELINE_SECRET must be set to a random value before the gateway listens on {self.host}: API keys are"
                " stored under it. Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        return self

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def gpus(self) -> float:
        """What a replica takes."""
        if self.replica_gpus is not None:
            return self.replica_gpus
        return float(self.gpu_layers != 0 or self.engine == "vllm")

    @property
    def database(self) -> str:
        """SQLAlchemy's URL of the database, with an async driver."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'paceline.db'}"

    @property
    def database_shown(self) -> str:
        """The same, without its password: for messages."""
        return make_url(self.database).render_as_string(hide_password=True)

    @property
    def target_path(self) -> Path:
        """Where the target's file should be: `target_model` as it is if that exists, else in `model_dir`."""
        return self._model_file(self.target_model)

    @property
    def origin_list(self) -> tuple[str, ...]:
        return tuple(self.origins.split())

    @property
    def draft_path(self) -> Path:
        """Where the browsers' draft model should be."""
        return self._model_file(self.draft_model)

    def _model_file(self, name: str) -> Path:
        given = Path(name).expanduser()
        return given if given.is_file() or given.is_absolute() else self.model_dir.expanduser() / given

    @property
    def vllm_model(self) -> str:
        """What vLLM is given: a folder as it is or in `model_dir`, else a name on the hub."""
        cached = self.model_dir.expanduser() / self.target_model
        return str(cached) if cached.is_dir() and not Path(self.target_model).is_dir() else self.target_model

    @property
    def limits(self) -> Limits:
        """What `welcome` tells an edge."""
        return Limits(
            frame_bytes=self.frame_bytes,
            draft_tokens=self.draft_tokens,
            streams=self.socket_streams,
            hello_s=self.hello_s,
            idle_s=self.idle_s,
            grace_s=self.grace_s,
        )
