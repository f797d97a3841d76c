#!/usr/bin/env bash
# Runs the tests of `make test` with each Python from 3.11 to 3.14 that this machine has.
set -uo pipefail
cd "$(dirname "$0")/.."

interpreter() {  # prints the path of Python $1, from PATH or from pyenv
  for path in "$(command -v "python$1")" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
    [ -x "$path" ] && "$path" -c 'import venv' && { echo "$path"; return; }
  done 2> /dev/null
  return 1
}

test_with() {  # builds and tests a copy of the tree with the interpreter $1 in the folder $2
  rm -rf "$2" && mkdir -p "$2" && git ls-files -z | xargs -0 cp --parents --target-directory "$2" &&
    "$1" -m venv "$2/.venv" && make --no-print-directory --directory "$2" test
}

tested=() failed=() absent=()
for version in 3.11 3.12 3.13 3.14; do
  if ! python=$(interpreter "$version"); then
    absent+=("$version")
  elif test_with "$python" "build/python$version"; then
    tested+=("$version")
  else
    failed+=("$version")
  fi
done
echo "tested with Python: ${tested[*]:-none}; failed: ${failed[*]:-none}; not on this machine: ${absent[*]:-none}"
[ ${#failed[@]} -eq 0 ] && [ ${#tested[@]} -gt 0 ]
