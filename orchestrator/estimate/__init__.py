"""What a job would take and cost, told before any worker is invoked.

    share.py    a worker's share of each model's batch, computed once in this process: how long, how many bytes
    calls.py    the run in virtual time, and the bill for its calls
    job.py      both together, over the delays that the backend suggests

Read next: `job.py`.
"""
