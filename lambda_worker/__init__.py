"""The worker image: answers one invocation with coded gradient sums. Imports nothing of the other packages.

Read `contract.py` for what travels, then `handler.py` for what happens.
"""
