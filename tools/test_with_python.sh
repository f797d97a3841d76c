#!/usr/bin/env bash
# Runs `make test` with $1, such as python3.12, from PATH or from pyenv, in a copy of the tree. Then repeats simulations,
# which are the same with each Python.
set -euo pipefail
cd "$(dirname "$0")/.."
for python in "$(command -v "$1" || true)" "$HOME"/.pyenv/versions/"${1#python}".*/bin/python; do
  if [ -x "$python" ] && "$python" -c 'import venv' 2> /dev/null; then
    copy=build/$1
    rm -rf "$copy" && mkdir -p "$copy" && git ls-files -z | xargs -0 cp --parents --target-directory "$copy"
    "$python" -m venv "$copy/.venv"
    make --no-print-directory --directory "$copy" test
    cd "$copy"
    MSGQ_TEST_SEED=random exec .venv/bin/python -m pytest -n auto tests/unit/test_simulation_order.py
  fi
done
echo "not tested: this machine has no $1"
