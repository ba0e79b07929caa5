"""A botocore session that cannot lead to a real account, whatever a user's shell and files hold. Knows no endpoint."""

from __future__ import annotations

import os

import botocore.session
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES

from gradmux.orchestrator.aws import service_models


def closed_session(region: str, access_key: str = "none", secret_key: str = "none") -> botocore.session.Session:
    """Reads no AWS file, AWS variable or proxy; its credentials are those of an emulator, which no account knows."""
    silent = {
        name: (in_file, None, default, cast)
        for name, (in_file, _, default, cast) in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()
        if isinstance(name, str)
    }
    nothing = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
        "region": ("region", None, region, None),
    }
    session = botocore.session.Session(session_vars={**silent, **nothing})
    session.register_component("data_loader", service_models())
    session.set_credentials(access_key, secret_key)
    session.set_default_client_config(Config(proxies={}))
    return session
