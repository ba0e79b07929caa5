"""The training side of the client: data sets, batches, requests, combining results, optimizer steps.

Read `trainer.py` first, then `gradients.py`; `requests.py` turns invocations into what workers understand.
"""
