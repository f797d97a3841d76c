#!/usr/bin/env bash
# Prints which lines the tests of `make nightly` have run so far. A module that no test runs is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m coverage combine --append --quiet
.venv/bin/python -m coverage report > build/coverage/report.txt
head -n 22 build/coverage/report.txt
! grep ' 0%$' build/coverage/report.txt || { echo "no test runs these modules"; exit 1; }
