"""Privacy mode `redacted`: personal data stays here, placeholders travel, and the answer gets the data back.

spans         where in a text something was found, and which finding wins where two overlap
checked       recognisers whose findings a checksum or a numbering plan confirms, and keys by their issuers' shapes
names         names and addresses by their cues: optional, since cues miss many
redactor      one conversation's stable placeholders
restoring     the way back, in text that arrives in pieces
"""
