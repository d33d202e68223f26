"""The sans-I/O core, shared by both sides: frames and state machines, no clock, task or socket.

frames      what travels, and how it is encoded
errors      what can go wrong, with codes and WebSocket close codes
ledger      the committed output of one stream, addressed by position
drafting    the edge's state machine: draft, block, commit, rollback
verifying   the cloud's: mailbox of drafts, path check, candidates, hold
sampling    the one sampling rule that both sides share
            (its parts: noise, penalties, row, survivors)
latency     what a scheme costs: the formulas of docs/architecture.md
"""
