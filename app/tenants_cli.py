"""`paceline-gateway tenants`, `keys` and `usage`: they work on the gateway's database, whether it runs or not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from datetime import date, datetime
from typing import Annotated, Any, TypeVar, get_args

import typer
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from app.console import fail, load_settings, show
from app.tenants.export import COLUMNS, as_csv, usage_line
from app.tenants.repository import Repository, TenantRecord, open_database
from app.tenants.service import NoSuchTenant, TenantExists, Tenants
from app.tenants.terms import NAME, Terms
from edge.protocol.frames import Policy

T = TypeVar("T")
tenants = typer.Typer(no_args_is_help=True, help="Tenants: who is served, and on what terms.")
keys = typer.Typer(no_args_is_help=True, help="API keys.")
_QUOTAS = ("requests_per_minute", "tokens_per_minute", "concurrent_streams", "draft_tokens_per_minute")
_BOUNDS = (*_QUOTAS, "models", "policies")

NameArgument = Annotated[str, typer.Argument(help="The tenant's name.")]
Weight = Annotated[float | None, typer.Option(min=0.001, max=1000, help="Its share of the target when that is busy.")]
Requests = Annotated[int | None, typer.Option("--requests-per-minute", min=1, help="Requests a minute.")]
Tokens = Annotated[int | None, typer.Option("--tokens-per-minute", min=1, help="Of prompts and outputs, a minute.")]
Streams = Annotated[int | None, typer.Option("--concurrent-streams", min=1, help="Streams at a time.")]
Drafts = Annotated[int | None, typer.Option("--draft-tokens-per-minute", min=1, help="Draft tokens a minute.")]
Models = Annotated[str | None, typer.Option(help="Models that it may use, separated by commas.")]
Policies = Annotated[str | None, typer.Option(help="Policies that it may use: eager, hold, auto, sync.")]
Lift = Annotated[list[str] | None, typer.Option(help="Take a bound away, by its option's name; may be repeated.")]


@tenants.command("create")
def create_tenant(
    name: NameArgument,
    weight: Weight = None,
    requests: Requests = None,
    tokens: Tokens = None,
    streams: Streams = None,
    drafts: Drafts = None,
    models: Models = None,
    policies: Policies = None,
) -> None:
    """Make a tenant. What is not bounded here has no bound. Give it a key with `keys create --tenant NAME`."""
    terms = _changed(Terms(), weight, (requests, tokens, streams, drafts), models, policies)
    if not re.fullmatch(NAME, name):
        fail("A tenant's name is letters, digits, '.', '_' and '-', at most 100, beginning with a letter or digit.")
    _show([_with_tenants(lambda service: service.create_tenant(name, terms))])


@tenants.command("list")
def list_tenants() -> None:
    """All tenants and their terms; a dash means without a bound."""
    _show(_with_tenants(lambda service: service.tenants()))


@tenants.command("set")
def set_terms(
    name: NameArgument,
    weight: Weight = None,
    requests: Requests = None,
    tokens: Tokens = None,
    streams: Streams = None,
    drafts: Drafts = None,
    models: Models = None,
    policies: Policies = None,
    lift: Lift = None,
) -> None:
    """Change a tenant's terms. A running gateway goes by them within PACELINE_KEY_CACHE_S seconds."""
    lifted = {bound.strip("-").replace("-", "_") for bound in lift or ()}
    if unknown := lifted - set(_BOUNDS):
        fail(f"There is no bound {', '.join(unknown)}. There are: {', '.join(_BOUNDS).replace('_', '-')}.")

    async def change(service: Tenants) -> TenantRecord:
        before: dict[str, Any] = asdict((await service.tenant(name)).terms) | dict.fromkeys(lifted)
        terms = _changed(Terms(**before), weight, (requests, tokens, streams, drafts), models, policies)
        return await service.set_terms(name, terms)

    _show([_with_tenants(change)])


@keys.command("create")
def create_key(
    tenant: Annotated[str, typer.Option(help="Whose key; the tenant is created if it is new.")] = "default",
    name: Annotated[str, typer.Option(help="What the key is for.")] = "",
) -> None:
    """Make a key and print it. It can't be shown again."""
    if not re.fullmatch(NAME, tenant):
        fail(f"{tenant!r} can't be a tenant's name: letters, digits, '.', '_' and '-', at most 100.")
    typer.echo(_with_tenants(lambda service: service.create_key(tenant, name)))


@keys.command("list")
def list_keys(tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None) -> None:
    """Keys: their beginnings, never the keys."""
    table = Table("id", "tenant", "name", "key", "created", "revoked")
    for key in _with_tenants(lambda service: service.keys(tenant)):
        revoked = f"{key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else ""
        table.add_row(key.id, key.tenant, key.name, f"{key.prefix}…", f"{key.created_at:%Y-%m-%d %H:%M}", revoked)
    show(table)


@keys.command("rotate")
def rotate_key(
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")],
    overlap: Annotated[float, typer.Option(min=0, help="Hours that the old key is good beside the new one.")] = 24.0,
) -> None:
    """Make a key in another's place and print it. The other ends after the overlap."""
    made = _with_tenants(lambda service: service.rotate(key_id, overlap_s=overlap * 3600))
    if made is None:
        fail(f"There is no valid key {key_id}.")
    typer.echo(made.key)


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")]) -> None:
    """Revoke a key. A running gateway refuses it within PACELINE_KEY_CACHE_S seconds."""
    if not _with_tenants(lambda service: service.revoke(key_id)):
        fail(f"There is no valid key {key_id}.")


Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="A day (UTC), included.")]


def usage(
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    since: Day = None,
    until: Day = None,
    as_comma_separated: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """What was used, by day, tenant and model: requests, tokens and steps, up to the gateway's last flush."""
    first, last = (_day(since), _day(until))
    rows = _with_repository(lambda repository: repository.usage(tenant=tenant, since=first, until=last))
    if as_comma_separated:
        typer.echo(as_csv(rows), nl=False)
        return
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*map(str, usage_line(row).values()))
    show(table)


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()


def _changed(
    terms: Terms,
    weight: float | None,
    quotas: tuple[int | None, ...],
    models: str | None,
    policies: str | None,
) -> Terms:
    """`terms` with what the command line gave."""
    given: dict[str, Any] = {"weight": weight, **dict(zip(_QUOTAS, quotas, strict=True))}
    if models is not None:
        given["models"] = _names(models)
    if policies is not None:
        given["policies"] = _names(policies)
        known = get_args(Policy)
        if not given["policies"] or set(given["policies"]) - set(known):
            fail(f"--policies takes some of {', '.join(known)}, separated by commas.")
    return replace(terms, **{name: value for name, value in given.items() if value is not None})


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _show(records: list[TenantRecord]) -> None:
    table = Table("tenant", "weight", *(bound.replace("_", " ") for bound in _BOUNDS), "since")
    for record in records:
        terms = asdict(record.terms)
        table.add_row(
            record.name,
            f"{record.terms.weight:g}",
            *(_cell(terms[bound]) for bound in _BOUNDS),
            f"{record.created_at:%Y-%m-%d}",
        )
    show(table)


def _cell(bound: int | tuple[str, ...] | None) -> str:
    if bound is None:
        return "–"
    return str(bound) if isinstance(bound, int) else ", ".join(bound) or "none"


def _with_tenants(work: Callable[[Tenants], Awaitable[T]]) -> T:
    secret = load_settings().secret.get_secret_value()
    return _with_repository(lambda repository: work(Tenants(repository, secret=secret, cache_s=0, clock=lambda: 0.0)))


def _with_repository(work: Callable[[Repository], Awaitable[T]]) -> T:
    """The work's result; ends the program where it can't be done."""
    settings = load_settings()

    async def run() -> T:
        repository = Repository(open_database(settings.database))
        try:
            await repository.upgrade()
            return await work(repository)
        finally:
            await repository.close()

    try:
        return asyncio.run(run())
    except NoSuchTenant as error:
        fail(f"There is no tenant {error}. `paceline-gateway tenants list` shows all.")
    except TenantExists as error:
        fail(f"There is a tenant {error} already. `paceline-gateway tenants set` changes its terms.")
    except (SQLAlchemyError, OSError) as error:
        fail(f"The database {settings.database_shown} can't be used: {error}", status=3)
