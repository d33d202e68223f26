"""Each fault of faults.py, by the path that answers and the form of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from edge.script import Script, ScriptVocabulary
from tests.e2e.faults import FAULTS, Fault
from tests.e2e.told import Path_, There, places

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[Path_, There]]:
    async with places(tmp_path_factory.mktemp("faults"), Script(ScriptVocabulary())) as found:
        yield found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["cloud", "hybrid"])
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
async def test_the_fault_is_not_here(there: dict[Path_, There], fault: Fault, path: Path_, stream: bool) -> None:
    await fault(replace(there[path], stream=stream))
