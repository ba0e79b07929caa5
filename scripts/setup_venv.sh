#!/usr/bin/env bash
# Makes the virtual environment $1 and installs gradmux into it, editable, with the tested versions of constraints.txt.
# Needs Python 3.11 or newer with venv. PYTHON names an interpreter; without it the usual names are tried.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        echo "gradmux: PYTHON=$PYTHON is not a Python 3.11 or newer" >&2
    else
        echo "gradmux: no Python 3.11 or newer found; install one (Debian, Ubuntu: apt install python3 python3-venv)," \
             "or name it: make PYTHON=/path/to/python3.12" >&2
    fi
    return 1
}

make_venv() {
    local python
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        local version
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "gradmux: $python has no venv module; install it (Debian, Ubuntu: apt install python$version-venv)" >&2
        return 1
    fi
    echo "Setting up $venv with $("$python" --version) ($python)"
    "$python" -m venv --clear "$venv"
}

if ! { [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python"; }; then
    make_venv
fi
echo "Installing gradmux and what it needs into $venv (about 2 GB on the first time, a few minutes)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
echo "Installed: $("$venv/bin/python" -c 'import importlib.metadata as m; print("gradmux", m.version("gradmux"), "with torch", m.version("torch"))')"
