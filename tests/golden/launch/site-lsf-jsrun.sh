#!/bin/bash
#BSUB -J scaffold
#BSUB -n 16
#BSUB -R "span[ptile=4] affinity[core(8)]"
#BSUB -gpu "num=4/host"
#BSUB -W 02:00
#BSUB -o /scratch/user/runs/scaffold/log/job-%J.out
#BSUB -r
#BSUB -Q 75
#BSUB -wa USR1 -wt 2
#BSUB -alloc_flags smt1

# A run on 16 MPI ranks on 4 nodes. Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

out=/scratch/user/runs/scaffold
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $LSB_JOBID on $(hostname)"

source .venv/bin/activate
export OMP_NUM_THREADS=8
export FEDHPC_JOB_END=$(($(date +%s) + 7200))  # the time limit above: change both

launcher=(jsrun --nrs 16 --rs_per_host 4 --tasks_per_rs 1 --cpu_per_rs 8 --bind rs --gpu_per_rs 1)
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
    exit 75  # -Q 75 above puts the job back into the queue
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
