"""Schemes: who computes what in each round, which answers suffice, how to combine them. Pure: numpy in, numbers out.

Read `scheme.py` (the protocol), `codes/` (one round), then the schemes, simplest first: `uncoded.py`,
`gradient_coding.py`, `selective_repeat.py`, `multiplexed.py`. `registry.py` builds them by name.
"""
