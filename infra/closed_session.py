"""A botocore session that cannot lead to a real account, whatever a user's shell and files hold. Knows no endpoint."""

from __future__ import annotations

import os

import botocore.session
from botocore.config import Config


def closed_session(region: str) -> botocore.session.Session:
    """Reads no AWS file, AWS variable or proxy; its credentials are made up."""
    nothing = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
        "region": ("region", None, region, None),
    }
    session = botocore.session.Session(session_vars=nothing)
    session.set_credentials("local", "local", "local")
    session.set_default_client_config(Config(proxies={}))
    return session
