"""Each gateway's last batch of usage, so that one whose commit went unanswered isn't added twice."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_writers",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("usage_writers")
