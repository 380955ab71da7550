#!/bin/bash
#FLUX: --job-name=scaffold
#FLUX: --nodes=4
#FLUX: --nslots=4
#FLUX: --cores-per-slot=32
#FLUX: --exclusive
#FLUX: --gpus-per-slot=4
#FLUX: --time-limit=7200s
#FLUX: --signal=SIGUSR1@120s
#FLUX: --output=/scratch/user/runs/scaffold/log/job-{{id}}.out

# A study on 16 MPI ranks on 4 nodes, 3 jobs that share one directory (hand it in that often). Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

job=
stopped=
cancelled=
trap 'stopped=yes; kill -USR1 "$job" 2>/dev/null' USR1  # time is running out: the ranks save and stop
trap 'stopped=yes; cancelled=yes; kill -USR1 "$job" 2>/dev/null' TERM

out=/scratch/user/runs/scaffold
script=/scratch/user/runs/scaffold/job.sh
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $(flux getattr jobid) on $(hostname)"

set +u  # what a site loads may read variables that nobody set
source .venv/bin/activate
set -u
export OMP_NUM_THREADS=8
export FEDHPC_JOB_END=$(($(date +%s) + 7200))  # the time limit above: change both

launcher=(flux run -N 4 -n 16 -c 8 -o pmi=pmix -o cpu-affinity=per-task -g 1)
finished="$out/log/exit-$(hostname)-$$"
rm -f "$finished"  # process ids come back
command=(fedhpc study /home/user/configs/study.yaml --out "$out" --exit-file "$finished")

progress() { stat -c '%n %y' "$out"/*/checkpoints/round-* "$out"/*/done 2>/dev/null; }
before=$(progress)

left() { echo "$((${FEDHPC_JOB_END:-9999999999} - $(date +%s)))"; }  # seconds
guard() {  # a launcher that lost a host may never end: not after the work is done, nor before the time limit
    trap '' USR1  # some schedulers send it to all processes of a job
    until [ -e "$finished" ] || [ "$(left)" -le 5 ]; do sleep 2; done
    [ ! -e "$finished" ] || sleep 60
    kill -KILL "$job"
}

code=1
if [ -z "$stopped" ]; then
    code=0
    "${launcher[@]}" "${command[@]}" &
    job=$!
    guard >/dev/null 2>&1 &
    watch=$!
    wait "$job" || code=$?
    while kill -0 "$job" 2>/dev/null; do  # a signal ends `wait` early, the job goes on
        code=0
        wait "$job" || code=$?
    done
    kill "$watch" 2>/dev/null
fi

if [ -e "$finished" ]; then  # the truth; launchers' exit codes are not
    exit "$(<"$finished")"
fi
if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]; then
    echo "not finished (exit code $code): handing it in again"
    OUT="$out" flux --parent batch --dependency="afterany:$(flux getattr jobid)" "$script" "$@" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
