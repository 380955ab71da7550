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
#SBATCH --signal=B:USR1@120

# A run on 16 MPI ranks on 4 nodes. Written by `fedhpc submit`: read it, edit it, keep it.
# shellcheck disable=SC1091
set -uo pipefail

out=/scratch/user/runs/scaffold
script=/scratch/user/runs/scaffold/job.sh
cd /home/user/fedhpc || exit 1
mkdir -p "$out/log"
echo "$(date +%FT%T) job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)) on $(hostname)"

source .venv/bin/activate
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-8}

launcher=(mpirun -n 16 --map-by ppr:4:node:PE=8 -x OMP_NUM_THREADS --with-ft ulfm --mca async_mpi_finalize 1)
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
    scontrol requeue "$SLURM_JOB_ID" || OUT="$out" sbatch --dependency="afterany:$SLURM_JOB_ID" "$script" "$@" && exit 0
fi
echo "not finished (exit code $code), and cancelled or nothing new saved: not handed in again" >&2
exit "$((code == 0 || code == 75 ? 1 : code))"
