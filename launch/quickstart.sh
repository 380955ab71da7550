#!/usr/bin/env bash
# From a bare clone to a federated run on 4 MPI ranks with a report. Needs python3 (3.10 or later) and pip's network.
#
#   bash launch/quickstart.sh                     the handwritten digits over 20 clients, until 90 % mean accuracy
#   bash launch/quickstart.sh --seed 7 --out DIR  further arguments go to `fedhpc run`
#
# Each call makes a new run directory runs/quickstart-DATE-TIME, unless --out names one.
set -euo pipefail
# shellcheck source=launch/_venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

new_directory() {
    local base name number=2
    base=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)
    name=$base
    while [ -e "$name" ]; do
        name=$base-$number
        number=$((number + 1))
    done
    printf '%s\n' "$name"
}

# The run directory among the arguments, if the user named one.
named_directory() {
    local found=
    while [ $# -gt 0 ]; do
        case $1 in
            --out) found=${2-} ;;
            --out=*) found=${1#--out=} ;;
        esac
        shift
    done
    printf '%s\n' "$found"
}

if [[ ${1-} == -h || ${1-} == --help ]]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
fi
prepare_venv
mpi_on_this_machine
arguments=("$@")
out=$(named_directory "$@")
if [ -z "$out" ]; then
    out=$(new_directory)
    arguments+=(--out "$out")
fi

code=0
"$venv/bin/mpirun" -n 4 "$venv/bin/fedhpc" run "$root/configs/smoke/quickstart.yaml" "${arguments[@]}" || code=$?
if [ "$code" -eq 75 ]; then
    say "stopped early at a clean point; to go on: bash launch/quickstart.sh$(printf ' %q' "${arguments[@]}") --resume"
    exit 75
elif [ "$code" -ne 0 ]; then
    say "the run failed (exit code $code); see the message above"
    exit "$code"
elif [ ! -f "$out/done" ] && [ -d "$out" ]; then
    # mpirun's exit code alone proves nothing: a run that is complete has written `done`.
    die "mpirun ended without an error, but the run in '$out' is not complete"
fi
[ ! -d "$out" ] || "$venv/bin/fedhpc" report "$out"
