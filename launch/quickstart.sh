#!/usr/bin/env bash
# From a bare clone to a federated study on 4 MPI ranks with a report. Needs python3 (3.10 or later) and pip's network.
#
#   bash launch/quickstart.sh               FedAvg, FedDyn and SCAFFOLD on handwritten digits over 20 clients, until
#                                           90 % mean accuracy; then the report and the HEM table
#   bash launch/quickstart.sh --seeds [0,1] --out DIR   further arguments go to `fedhpc study`
#
# Each call makes a new directory runs/quickstart-DATE-TIME; one named by --out is gone on with.
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

# The study's directory among the arguments, if the user named one.
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
"$venv/bin/mpirun" -n 4 "$venv/bin/fedhpc" study "$root/configs/smoke/quickstart_study.yaml" "${arguments[@]}" || code=$?
if [ "$code" -eq 75 ]; then
    say "stopped early at a clean point; to go on: bash launch/quickstart.sh$(printf ' %q' "${arguments[@]}")"
    exit 75
elif [ "$code" -ne 0 ]; then
    say "the study failed (exit code $code); see the message above"
    exit "$code"
fi
# mpirun's exit code alone proves nothing: a run that is complete has written `done`.
complete=$(find "$out" -mindepth 2 -maxdepth 2 -name 'done' 2>/dev/null | wc -l)
[ "$complete" -ge 1 ] || die "mpirun ended without an error, but no run in '$out' is complete"
"$venv/bin/fedhpc" report "$out"
"$venv/bin/fedhpc" hem "$out" --out "$out/hem"
