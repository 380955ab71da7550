#!/bin/bash
#FLUX: --job-name=scaffold
#FLUX: --nodes=4
#FLUX: --nslots=16
#FLUX: --cores-per-slot=8
#FLUX: --exclusive
#FLUX: --gpus-per-slot=1
#FLUX: --time-limit=7200s
#FLUX: --signal=SIGUSR1@120s
#FLUX: --output=/scratch/user/runs/scaffold/log/job-{{id}}.out

# A run on 16 MPI ranks on 4 nodes. Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

out=/scratch/user/runs/scaffold
script=/scratch/user/runs/scaffold/job.sh
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $(flux getattr jobid) on $(hostname)"

source .venv/bin/activate
export OMP_NUM_THREADS=8
export FEDHPC_JOB_END=$(($(date +%s) + 7200))  # the time limit above: change both

launcher=(flux run -N 4 -n 16 -c 8 -o cpu-affinity=per-task -g 1)
command=(fedhpc run /home/user/configs/scaffold.yaml --rounds 200 --out "$out" --resume)

progress() { printf '%s\n' "$out"/checkpoints/round-*; }
before=$(progress)

job=
cancelled=
code=0
trap 'kill -USR1 "$job" 2>/dev/null' USR1  # time is running out: the ranks save and stop at the next clean point
trap 'cancelled=yes; kill -USR1 "$job" 2>/dev/null' TERM
"${launcher[@]}" "${command[@]}" &
job=$!
wait "$job" || code=$?
while kill -0 "$job" 2>/dev/null; do  # a signal ends `wait` early, the job goes on
    code=0
    wait "$job" || code=$?
done

if [ -e "$out/done" ]; then  # the truth; launchers' exit codes are not
    exit 0
fi
if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]; then
    echo "not finished (exit code $code): handing it in again"
    flux batch --dependency="afterany:$(flux getattr jobid)" "$script" "$@" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
