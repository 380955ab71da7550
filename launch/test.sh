#!/usr/bin/env bash
# From a bare clone to all checks: lint, format, types, import contracts, tests. Needs python3 and pip's network.
#
#   bash launch/test.sh             everything that continuous integration runs
#   bash launch/test.sh -k golden   further arguments go to pytest
#
# Every check runs, also after one has failed; the exit code is 0 only when all have passed and some test was collected.
set -euo pipefail
# shellcheck source=launch/_venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

bad=()
check() {
    local name=$1
    shift
    printf '== %s\n' "$name"
    "$@" || bad+=("$name")
}

prepare_venv
export OMP_NUM_THREADS=1  # tests are small: more threads only make them slower, and MPI tests start several ranks
cd "$root"
check "ruff check" "$venv/bin/ruff" check .
check "ruff format" "$venv/bin/ruff" format --check .
check "mypy" "$venv/bin/mypy" fedhpc
check "import contracts" "$venv/bin/lint-imports" --no-logo
check "pytest" "$venv/bin/python" -m pytest "$@"
if [ ${#bad[@]} -gt 0 ]; then
    printf 'fedhpc: failed: %s\n' "$(IFS=,; echo "${bad[*]}")" >&2
    exit 1
fi
