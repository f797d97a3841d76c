#!/usr/bin/env bash
# Runs the tests of `make test` that use the extensions, on a copy of the tree whose extensions are built with the address
# and undefined behaviour sanitizers. Each uninitialized local variable has the same unusual value in each run, so GCC 12
# or newer is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
copy=build/sanitized
rm -rf "$copy" && mkdir -p "$copy" && git ls-files -z | xargs -0 cp --parents --target-directory "$copy"
cd "$copy"

sed -i 's/"-g0", "-O3"/"-g1", "-O1"/' tools/building/extensions.py  # reports then have line numbers
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -ftrivial-auto-var-init=pattern"
CFLAGS=$flags LDFLAGS=$flags "$python" setup.py -q build_ext --inplace -j2

LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
export LD_PRELOAD PYTHONPATH=$PWD
export PYTHONMALLOC=malloc           # each object has its own red zones
export ASAN_OPTIONS=detect_leaks=0   # the interpreter frees little at its end
exec "$python" -m pytest -q -p no:cacheprovider -n auto --dist worksteal -m "not ci and not nightly and not style" \
  tests/contract tests/decoding tests/recording tests/serve tests/unit tests/visionipc
