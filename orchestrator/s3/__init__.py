"""What `store.py` needs to speak with S3: a client's settings, causes of errors, and a way around a wrong clock."""
