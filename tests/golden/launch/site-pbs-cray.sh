#!/bin/bash
#PBS -N scaffold
#PBS -l select=4:ncpus=32:mpiprocs=4:ompthreads=8:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=02:00:00
#PBS -j oe
#PBS -o /scratch/user/runs/scaffold/log/
#PBS -r y

# A run on 16 MPI ranks on 4 nodes. Written by `fedhpc submit`: read it, edit it, keep it.
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
echo "$(date +%FT%T) job $PBS_JOBID on $(hostname)"

set +u  # what a site loads may read variables that nobody set
module load cray-mpich
source .venv/bin/activate
set -u
export OMP_NUM_THREADS=8
export FEDHPC_JOB_END=$(($(date +%s) + 7200))  # the time limit above: change both

launcher=(mpiexec -n 16 --ppn 4 --depth 8 --cpu-bind depth)
finished="$out/done"
command=(fedhpc run /home/user/configs/scaffold.yaml --rounds 200 --out "$out" --resume)

progress() { stat -c '%n %y' "$out"/checkpoints/round-* 2>/dev/null; }
before=$(progress)

left() { echo "$((${FEDHPC_JOB_END:-9999999999} - $(date +%s)))"; }  # seconds
guard() {  # a launcher that lost a host may never end: not after the work is done, nor before the time limit
    trap '' USR1  # some schedulers send it to all processes of a job
    until [ -e "$finished" ] || [ "$(left)" -le 120 ]; do sleep 5; done
    [ -e "$finished" ] || kill -USR1 "$job"  # this scheduler gives no warning
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
    exit 0
fi
if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]; then
    echo "not finished (exit code $code): handing it in again"
    OUT="$out" qsub -v "$(names=(OUT "${!FEDHPC_@}"); IFS=,; echo "${names[*]}")" -W depend=afterany:"$PBS_JOBID" "$script" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
