#!/bin/bash
#PBS -N scaffold
#PBS -l select=4:ncpus=32:mpiprocs=4:ompthreads=8:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=02:00:00
#PBS -J 0-2
#PBS -j oe
#PBS -o /scratch/user/runs/scaffold/log/
#PBS -r y

# A study on 16 MPI ranks on 4 nodes, 3 jobs that share one directory. Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

out=/scratch/user/runs/scaffold
script=/scratch/user/runs/scaffold/job.sh
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $PBS_JOBID on $(hostname)"

source .venv/bin/activate
export OMP_NUM_THREADS=8
export PRTE_MCA_plm_ssh_args="-o ServerAliveInterval=2 -o ServerAliveCountMax=2"  # a lost host ends the job in seconds
export FEDHPC_JOB_END=$(($(date +%s) + 7200))  # the time limit above: change both

launcher=(mpirun -n 16 --map-by ppr:4:node:PE=8 -x OMP_NUM_THREADS)
command=(fedhpc study /home/user/configs/study.yaml --out "$out")

progress() { printf '%s\n' "$out"/*/checkpoints/round-* "$out"/*/done; }
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

if [ "$code" -eq 0 ]; then
    exit 0
fi
if [ -z "$cancelled" ] && [ "$code" -ne 2 ] && [ "$(progress)" != "$before" ]; then
    echo "not finished (exit code $code): handing it in again"
    OUT="$out" qsub -V -W depend=afterany:"$PBS_JOBID" -J "$PBS_ARRAY_INDEX-$((PBS_ARRAY_INDEX + 1)):2" "$script" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
