"""Whose turn it is to send, where the frames and sockets of test_connection.py don't get to."""

from __future__ import annotations

from edge.protocol.frames import Error, Open
from edge.roster import Roster
from tests.edge.peer import Told, opened, stream


async def test_a_stream_that_is_told_to_come_again_loses_its_turn() -> None:
    """Found by the simulation: the turn stayed, and the next frame's sender found no stream under its id."""
    roster, told = Roster(), Told()
    one = stream(told)
    roster.place(one)
    assert roster.next_frame() is not None  # `open`
    one.receive(opened(0), 10)
    roster.displace()
    one.resume_token = ""
    roster.place(one)
    turn = roster.next_frame()
    assert turn is not None
    assert isinstance(turn[1], Open)
    roster.mark(one)  # a draft may have come meanwhile
    one.receive(Error(1, "overloaded", "later", final=True, retry_after_s=3.0), 10)
    roster.place_again(one)
    assert roster.next_frame() is None
    assert roster.waiting == [one]
    roster.clear()
