#!/bin/bash
#BSUB -J scaffold[1-8]
#BSUB -n 16
#BSUB -R "span[ptile=4] affinity[core(8)]"
#BSUB -gpu "num=4/host"
#BSUB -o /scratch/user/runs/scaffold/log/job-%J_%I.out
#BSUB -r
#BSUB -Q 75

# A sweep on 16 MPI ranks on 4 nodes, 8 jobs that share one directory. Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

out=/scratch/user/runs/scaffold
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $LSB_JOBID on $(hostname)"

source .venv/bin/activate
export OMP_NUM_THREADS=8
export PRTE_MCA_plm_ssh_args="-o ServerAliveInterval=2 -o ServerAliveCountMax=2"  # a lost host ends the job in seconds

launcher=(mpirun -n 16 --map-by ppr:4:node:PE=8 -x OMP_NUM_THREADS)
command=(fedhpc sweep /home/user/configs/pacs.yaml --out "$out")

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

if [ "$code" -eq 0 ]; then
    exit 0
fi
if [ -z "$cancelled" ] && [ "$code" -eq 75 ]; then
    echo "not finished (exit code $code): handing it in again"
    exit 75  # -Q 75 above puts the job back into the queue
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
