"""gradmux in an AWS account: what is there, what has to be done, and doing it.

    settings -> observe (reads the account) -> stack_plan | direct_plan | destroy_plan (pure) -> execute

A plan is data, so that a dry run is free. Nothing is kept on this machine: what exists is read from AWS each time.
`door.py` is the only file that knows boto3; `doctor/` looks whether everything is fit for a job.
Read next: `template.yaml`, then `plan.py`.
"""
