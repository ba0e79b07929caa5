"""The client's side: schemes, the loop, fleets, training, runs, simulator and tuner. Read next: `loop.py`."""
