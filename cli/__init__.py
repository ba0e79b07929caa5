"""The command `gradmux`: parses, calls the orchestrator, prints. Read next: `main.py`, then `orchestrator/runs/`."""
