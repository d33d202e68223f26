"""The device's side of Paceline, and the parts that both sides share.

Installs without FastAPI, SQLAlchemy or an engine, and never imports `app`.
"""
