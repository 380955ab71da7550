#!/bin/bash
#SBATCH --job-name=scaffold
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=02:00:00
#SBATCH --output=/scratch/user/runs/scaffold/log/job-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=B:USR1@120

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
echo "$(date +%FT%T) job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)) on $(hostname)"

set +u  # what a site loads may read variables that nobody set
source .venv/bin/activate
set -u
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-8}
export SLURM_NO_KILL=set  # for the srun by which mpirun starts its daemons, as --no-kill above

passed_on=()
for name in OMP_NUM_THREADS PATH LD_LIBRARY_PATH PYTHONPATH "${!FEDHPC_@}"; do  # ssh passes nothing on by itself
    [ -z "${!name:-}" ] || passed_on+=(-x "$name")
done
launcher=("$(command -v mpirun || echo mpirun)" -n 16 --map-by ppr:4:node:PE=8 "${passed_on[@]}" --with-ft ulfm --mca async_mpi_finalize 1 --prtemca oob_tcp_keepalive_time 0)
finished="$out/done"
command=(fedhpc run /home/user/configs/scaffold.yaml --rounds 200 --out "$out" --resume)

progress() { stat -c '%n %y' "$out"/checkpoints/round-* 2>/dev/null; }
before=$(progress)

me=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
me=${me:-$SLURM_JOB_ID}  # to Slurm the number of one member of an array means all of them
ends() {  # as Slurm has it now
    local at
    at=$(squeue -h -j "$me" -o %e) && [ -n "$at" ] || return
    date -d "$at" +%s || echo 9999999999
}
told=${SLURM_JOB_END_TIME:-$(ends 2>/dev/null || echo 9999999999)}  # older Slurms do not tell their jobs
left() {  # seconds; the limit may have been moved
    local end=$told
    [ "$((end - $(date +%s)))" -gt 15 ] || end=$(ends || echo "$end")
    echo "$((end - $(date +%s)))"
}
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
    exit 0
fi
if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]; then
    echo "not finished (exit code $code): handing it in again"
    scontrol requeue "$me" || OUT="$out" sbatch --dependency="afterany:$me" "$script" "$@" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
