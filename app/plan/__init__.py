"""Capacity planning: the engine's own scheduler and mailbox on a virtual clock, and what to advise from it."""
