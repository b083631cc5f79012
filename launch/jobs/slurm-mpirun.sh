#!/bin/bash
# Trains on several hosts under Slurm, mpirun starting the ranks: for a Slurm without PMIx. As slurm.sh otherwise.
#
#   sbatch --nodes=4 --ntasks-per-node=16 slurm-mpirun.sh my.yaml output=runs/a
#
# The signal before the time limit comes to this script, which passes it on; mpirun passes it to all ranks.
#SBATCH --job-name=octet
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=octet-%j.log

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
mpirun "${OCTET:-octet}" train "$@" &
ranks=$!
trap 'kill -USR1 $ranks' USR1
wait $ranks
status=$?
while [ $status -gt 128 ] && kill -0 $ranks 2>/dev/null; do # the wait ended by the signal, not mpirun
    wait $ranks
    status=$?
done
case $status in
75) scontrol requeue "$SLURM_JOB_ID" ;; # stopped as asked
0 | [2-5] | 7 | 70) ;;                  # done, or what the next start would meet again
*) [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ] || scontrol requeue "$SLURM_JOB_ID" ;; # a rank or host is lost
esac
exit $status
