#!/usr/bin/env bash
# Makes the virtual environment $1 and installs gradmux into it, editable, with the tested versions of constraints.txt.
# Needs Python 3.11 or newer with venv, or uv, which is used where it is installed. PYTHON names an interpreter; without
# it the usual names are tried. PyTorch comes from its own index of CPU wheels where that answers within 2 s: elsewhere pip
# may find a build for GPUs, which is several GB. TORCH_INDEX names another index; empty: none is asked.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
torch_index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3 python}; do
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
        if command -v uv >/dev/null; then
            echo "Setting up $venv with $("$python" --version) ($python) by uv"
            uv venv --quiet --clear --python "$python" "$venv"
            return
        fi
        local version
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "gradmux: $python has no venv module; install it (Debian, Ubuntu: apt install python$version-venv)" >&2
        return 1
    fi
    echo "Setting up $venv with $("$python" --version) ($python)"
    "$python" -m venv --clear "$venv"
}

# Does the index offer PyTorch, within 2 s in all? Asked as pip does, proxies and certificates included.
answers() {
    timeout 2 "$venv/bin/python" - "$1/torch/" >/dev/null 2>&1 <<'PYTHON'
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=1.8) as answer:
    sys.exit(b".whl" not in answer.read())
PYTHON
}

# Installs by uv where there is one, else by pip.
install() {
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$venv/bin/python" "$@"
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    fi
}

# The version of PyTorch that was tested, from its own index: later steps find it installed.
install_torch() {
    local wanted
    wanted=$(grep -E '^torch==' constraints.txt)
    if "$venv/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
        return
    fi
    if [ -n "$torch_index" ] && answers "$torch_index"; then
        if install --index-url "$torch_index" --no-deps "$wanted"; then
            echo "PyTorch: a CPU build from $torch_index"
            return
        fi
        echo "PyTorch: $torch_index has no $wanted for this machine; taking what pip finds"
    else
        echo "PyTorch: ${torch_index:-no index of CPU builds} does not answer; taking what pip finds"
    fi
}

if ! { [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python"; }; then
    make_venv
fi
if command -v uv >/dev/null; then by=uv; else by=pip; fi
echo "Installing gradmux and what it needs into $venv by $by (about 2 GB on the first time, a few minutes)"
install_torch
install --constraint constraints.txt --editable '.[dev]'
echo "Installed: $("$venv/bin/python" -c 'import importlib.metadata as m; print("gradmux", m.version("gradmux"), "with torch", m.version("torch"))')"
