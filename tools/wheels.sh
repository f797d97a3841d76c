#!/usr/bin/env bash
# Builds the wheels of the archive in dist: tools/wheels.sh FOLDER VERSION...
#
# Each version that tools/pythons.py finds or prepares builds its own wheel in FOLDER, and auditwheel tags it with the
# oldest glibc that it supports. A new environment installs the wheel, imports its compiled modules without a warning, and runs
# two test files on it, in the tree FOLDER/wheel. FOLDER/first-wheel names the first version's wheel, for which
# FOLDER/.venv becomes an environment.
set -euo pipefail
away=$1
shift

import_all='
import importlib, pathlib, sysconfig
packages = pathlib.Path(sysconfig.get_path("platlib"))
files = [file for folder in ("msgq", "visionipc") for file in (packages / folder).rglob("*.so")]
modules = [file for file in files if file.parent.name != "zeromq"]  # which needs the extra zmq
for module in modules:
    importlib.import_module(".".join(module.relative_to(packages).with_name(module.name.partition(".")[0]).parts))
print(f"imported {len(modules)} compiled modules of {packages}")
'

# Create an environment of the version $1 in the folder $2.
make_environment() {
  python "$(dirname "$0")/pythons.py" --environment "$2" "$1"
}

# Build and try the wheel of the version $1 in its environment.
build_wheel() {
  local folder=$away/$1 wheel
  local python=$folder/.venv/bin/python
  mkdir "$folder/repaired"
  "$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$folder" dist/*.tar.gz \
    > "$folder/build.log" 2>&1 || { tail -n 20 "$folder/build.log"; return 1; }
  auditwheel repair --wheel-dir "$folder/repaired" "$folder"/*.whl > "$folder/auditwheel.log" 2>&1 \
    || { echo "auditwheel has no tag for this platform; the wheel is for this machine"; cp "$folder"/*.whl -t "$folder/repaired"; }
  wheel=$(echo "$folder"/repaired/*.whl)
  "$python" -m pip --disable-pip-version-check install --quiet --no-compile "$wheel"
  (cd "$folder" && "$python" -I -W error -c "$import_all")
  "$python" -m pip --disable-pip-version-check install --quiet --no-compile 'pytest>=8,<9.2'
  (cd "$away/wheel" && "$python" -m pytest -q -p no:cacheprovider \
    tests/unit/test_naming.py tests/unit/test_ring_reader.py)
  mv "$wheel" dist
  built+=("$1")
  if [ ! -e "$away/first-wheel" ]; then
    echo "dist/$(basename "$wheel")" > "$away/first-wheel"
    make_environment "$1" "$away/.venv"
  fi
}

built=() missing=()
for version in "$@"; do
  if make_environment "$version" "$away/$version/.venv"; then build_wheel "$version"; else missing+=("$version"); fi
done
echo "wheels: built for ${built[*]:-no version}; missing: ${missing[*]:-none}"
[ "${#built[@]}" -gt 0 ]
