"""Usage as lines and as CSV: the same columns from the API and the command line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from app.tenants.repository import Counts, UsageRow

COLUMNS = ("day", "tenant", "model", *(field.name for field in fields(Counts)))


def usage_line(row: UsageRow) -> dict[str, Any]:
    """By the columns' names."""
    return {"day": row.day.isoformat(), "tenant": row.tenant, "model": row.model, **asdict(row.counts)}


def as_csv(rows: Sequence[UsageRow]) -> str:
    """With a header; lines end as RFC 4180 has it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(usage_line(row) for row in rows)
    return text.getvalue()
