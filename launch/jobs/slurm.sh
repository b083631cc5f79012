#!/bin/bash
# Trains on several hosts under Slurm, whose srun starts the ranks:
#
#   sbatch --nodes=4 --ntasks-per-node=16 slurm.sh my.yaml output=runs/a
#
# Before the time limit, and when the job is preempted, the ranks get a signal: they finish their step, write a
# checkpoint and end with status 75, and the job queues again, as it does after a lost rank or host, five times at most.
# The next start goes on with the same bits, whatever number of hosts it has. scancel ends the job for good.
#SBATCH --job-name=octet
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=octet-%j.log

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
srun --mpi=pmix "${OCTET:-octet}" train "$@"
status=$?
case $status in
75) scontrol requeue "$SLURM_JOB_ID" ;; # stopped as asked
0 | [2-5] | 7 | 70) ;;                  # done, or what the next start would meet again
*) [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ] || scontrol requeue "$SLURM_JOB_ID" ;; # a rank or host is lost
esac
exit $status
