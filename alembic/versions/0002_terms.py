"""Tenants have terms: weight, quotas, allowed models and policies."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

QUOTAS = ("requests_per_minute", "tokens_per_minute", "concurrent_streams", "draft_tokens_per_minute")
ALLOWED = ("models", "policies")


def upgrade() -> None:
    with op.batch_alter_table("tenants") as tenants:
        tenants.add_column(sa.Column("weight", sa.Float(), nullable=False, server_default="1"))
        for name in QUOTAS:
            tenants.add_column(sa.Column(name, sa.Integer(), nullable=True))
        for name in ALLOWED:
            tenants.add_column(sa.Column(name, sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tenants") as tenants:
        for name in (*ALLOWED, *QUOTAS, "weight"):
            tenants.drop_column(name)
