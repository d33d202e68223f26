"""Keys, tickets and resume tokens: can't be guessed, used twice, or told apart by how long a refusal takes."""

from __future__ import annotations

import ast
import secrets
from pathlib import Path

import pytest

from app.config import ROOT
from app.tenants.repository import Repository
from app.tenants.service import Tenants
from edge.protocol import frames
from tests.app.api.peer import dialled, greeted, opening, reference
from tests.app.security.files import everything
from tests.app.serving import Running, serving

KEEPERS = (
    "app/api/admin.py",
    "app/api/deps.py",
    "app/api/streams.py",
    "app/api/tickets.py",
    "app/api/verify.py",
    "app/tenants/service.py",
    "edge/serve/app.py",
)
"""The files in which a secret meets what a peer sent."""
SECRETS = ("secret", "key", "token", "ticket", "digest", "auth", "password")


async def test_resume_tokens_are_256_random_bits_and_all_wrong_ones_get_one_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, socket_errors=1000) as running, greeted(running) as owner:
        await owner.send(opening(1, max_tokens=200))
        opened = await owner.expect(frames.Opened)
        name, _, secret = opened.resume.partition(".")
        assert len(secret) >= 43, "of 64 characters each: 258 bits"
        wrong = [
            secret,
            name,
            f"{name}.",
            f"{name}.{secret[:-1]}",
            f"{name}.{secret}x",
            f"{name}.{'A' * len(secret)}",
            f".{secret}",
            f"{name}.\u00e9{secret[1:]}",
            "",
            *(f"{name}.{secrets.token_urlsafe(32)}" for _ in range(50)),
        ]
        other = await running.gateway.tenants.create_key("other", "")
        async with greeted(running) as same, greeted(running, key=other) as stranger:
            answers = set()
            for stream, token in enumerate(wrong, 1):
                await same.send(frames.Resume(stream, token))
                error = await same.expect(frames.Error, stream=stream)
                answers.add((error.code, error.message, error.final))
            await stranger.send(frames.Resume(1, opened.resume))  # the right one, of another tenant
            error = await stranger.expect(frames.Error, stream=1)
            answers.add((error.code, error.message, error.final))
        assert len(answers) == 1, answers
        assert (await owner.output(1))[0] == reference(running, 200), "its own stream went on all the while"


async def test_guessing_costs_the_socket(running: Running) -> None:
    async with greeted(running) as guesser:
        for stream in range(1, 60):
            await guesser.send(frames.Resume(stream, f"{secrets.token_hex(8)}.{secrets.token_urlsafe(32)}"))
        seen, code = await guesser.closed()
        assert code == 4429
        assert len(seen) < 40, "of 59 guesses"


async def test_a_ticket_is_spent_by_its_first_use_even_an_unfinished_one(running: Running) -> None:
    tenant = await running.gateway.tenants.authenticate(running.key)
    assert tenant is not None
    ticket = running.gateway.tickets.issue(tenant)
    async with dialled(running) as first:
        await first.send(frames.Hello(frames.VERSION, ticket=ticket))
        await first.expect(frames.Welcome)
        async with dialled(running) as replay:  # while the first is still open
            await replay.send(frames.Hello(frames.VERSION, ticket=ticket))
            seen, code = await replay.closed()
            assert (code, seen[0].code) == (4401, "invalid_api_key")
    async with dialled(running) as late:  # and after it is gone
        await late.send(frames.Hello(frames.VERSION, ticket=ticket))
        assert (await late.closed())[1] == 4401


def _compared(tree: ast.AST) -> list[str]:
    """Comparisons by == or != in which what is called like a secret meets anything but a constant."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            sides = (node.left, *node.comparators)
            constant = any(isinstance(side, ast.Constant) for side in sides)
            if not constant and any(word in _name(side) for side in sides for word in SECRETS):
                found.append(ast.unparse(node))
    return found


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", ""))).lower()


@pytest.mark.parametrize("file", KEEPERS)
def test_no_secret_is_compared_by_equality(file: str) -> None:
    assert _compared(ast.parse((ROOT / file).read_text())) == []


def test_the_rule_above_finds_what_it_should() -> None:
    assert _compared(ast.parse("ok = given == self._key")) == ["given == self._key"]
    assert _compared(ast.parse("ok = stream.secret != secret")) == ["stream.secret != secret"]
    assert _compared(ast.parse("ok = key == ''")) == []


async def test_a_key_is_looked_up_by_its_hmac_and_stored_nowhere(repository: Repository, tmp_path: Path) -> None:
    """Equal digests take a database's index as long as it takes: of a key that is near nothing can be learnt by that,
    since its HMAC is not near."""
    tenants = Tenants(repository, secret="s", cache_s=0, clock=lambda: 0.0)
    key = await tenants.create_key("acme", "")
    near = key[:-1] + ("0" if key[-1] != "0" else "1")
    digests = [tenants._digest(each) for each in (key, near)]
    assert sum(a == b for a, b in zip(*digests, strict=True)) < 8
    assert await tenants.authenticate(near) is None
    assert Tenants(repository, secret="t", cache_s=0, clock=lambda: 0.0)._digest(key) != digests[0]
    assert key.removeprefix("sk-pl-")[6:].encode() not in everything(tmp_path)
