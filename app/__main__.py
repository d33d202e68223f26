"""`python -m app` is `paceline-gateway`."""

from app.cli import main

main()
