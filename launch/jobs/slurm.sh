#!/bin/bash
# Trains on several hosts under Slurm, whose srun starts the ranks:
#
#   sbatch --nodes=4 --ntasks-per-node=16 slurm.sh my.yaml output=runs/a
#
# Before the time limit, and when the job is preempted, the ranks get a signal: they finish their step, write a
# checkpoint and end with status 75, and the job queues again, as it does after a lost rank or host, unless five starts brought no newer checkpoint.
# The next start goes on with the same bits, whatever number of hosts it has. scancel ends the job for good.
#SBATCH --job-name=octet
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=octet-%j.log

# Says whether to queue again: at most five times without a newer checkpoint, and a sixth time ends it.
again() {
    local output word tries=0 last='' newest
    output=$(sed -n "s/^output: *['\"]\\{0,1\\}\\([^'\" ]*\\).*/\\1/p" "$1" 2>/dev/null)
    for word; do [[ $word != output=* ]] || output=${word#output=}; done
    [ -n "$output" ] || return 0
    newest=$(find "$output/checkpoints" -name 'step-*.h5' 2>/dev/null | sort | tail -n 1)
    read -r tries last 2>/dev/null <"octet-tries.${output//\//_}"
    if [ "$last" = "$newest" ]; then tries=$((tries + 1)); else tries=1; fi
    echo "$tries $newest" >"octet-tries.${output//\//_}"
    [ "$tries" -le 5 ] || echo "not queued again: five times no newer checkpoint in $output" >&2
    [ "$tries" -le 5 ]
}

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
srun --mpi=pmix "${OCTET:-octet}" train "$@"
status=$?
case $status in
0 | [2-5] | 7 | 70) ;;                               # done, or what the next start would end with again
*) ! again "$@" || scontrol requeue "$SLURM_JOB_ID" ;; # stopped as asked (75), or a rank or host is lost
esac
exit $status
