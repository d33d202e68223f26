"""Deterministic simulation: gateways, engines, database, network and devices in one process, on virtual time.

Everything runs as it is but what the platform gives: the clock and timers (loop.py), threads (threads.py), sockets
(network.py), the disk under SQLite (disk.py), randomness (world.py). All of that is drawn from one seed, faults
included (plan.py, chaos.py); so a seed that fails, fails again, event by event. `python -m tests.sim` runs seeds;
docs/reliability.md says what it has found.
"""
