#!/usr/bin/env bash
# Runs the fast tests with the Python that $1 names, such as python3.14, in a copy of the tree, and keeps the result for the
# list at the end of `make nightly`. Then repeats simulations, which are the same with each Python. Packages without a
# wheel for this Python are left out, and so are the tests that import them.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1#python}
copy=$PWD/build/python$version result=$PWD/build/pythons/results/$version
mkdir -p "${result%/*}" && echo "missing" > "$result"
found=$(.venv/bin/python tools/pythons.py "$version")
full=$("$found" -c 'import sys; print(sys.version.split()[0])')
echo "failed with $full" > "$result"
echo "testing with Python $full: $found"

rm -rf "$copy" && mkdir -p "$copy" && git ls-files -z | xargs -0 cp --parents --target-directory "$copy"
.venv/bin/python tools/pythons.py --environment "$copy/.venv" "$version" > /dev/null
python=$copy/.venv/bin/python
install() {
  "$python" -m pip --disable-pip-version-check install --quiet --no-compile --only-binary :all: \
    --no-binary posix_ipc,pyspark "$@"
}
.venv/bin/python tools/requirements.py > "$copy/build.txt"
.venv/bin/python tools/requirements.py test > "$copy/test.txt"
install --requirement "$copy/build.txt"
without=()
if ! install --requirement "$copy/test.txt" 2> "$copy/pip.log"; then
  while read -r package; do
    install "$package" 2>> "$copy/pip.log" || without+=("${package%%[<>=]*}")
  done < "$copy/test.txt"
fi

cd "$copy"
export PYTHONPYCACHEPREFIX=$copy/build/pycache MSGQ_TEST_WITHOUT=${without[*]-}
# Foreign packages, such as posix_ipc, may switch the GIL on, with a warning. Without the GIL, pytest's capture of output
# also waits for its own locks in Python 3.13.
capture=fd
[ "${version%t}" = "$version" ] || { export PYTHON_GIL=0; capture=no; }
[ -z "$MSGQ_TEST_WITHOUT" ] || echo "no wheel for Python $full: $MSGQ_TEST_WITHOUT"
.venv/bin/python setup.py --quiet build_ext --inplace
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
.venv/bin/python -m pytest --max-worker-restart 0 -n auto --dist worksteal --capture "$capture" -m "not ci and not nightly and not style"
MSGQ_TEST_SEED=random .venv/bin/python -m pytest -n auto tests/unit/test_simulation_order.py
echo "passed with $full${without[*]:+, without ${without[*]}}" > "$result"
