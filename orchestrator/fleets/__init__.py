"""Fleets: what invokes workers and owns the clock. The loop cannot tell them apart."""
