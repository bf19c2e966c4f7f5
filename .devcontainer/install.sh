#!/usr/bin/env bash
# What `make lab` installs, but for torch, whose pin names no build: first its CPU build, from PyTorch's own index, as a
# codespace has no GPU. The rest then finds it there.
set -euo pipefail
cd "$(dirname "$0")/.."
make .venv/created
.venv/bin/python -m pip install --quiet "uv>=0.8,<1"
.venv/bin/python -m uv pip install --quiet --python .venv/bin/python --torch-backend cpu -c constraints.txt torch
make .venv/lab.done
.venv/bin/course work
