#!/bin/bash
# Trains on several hosts under PBS (OpenPBS, PBS Professional), by ssh to the hosts of its list:
#
#   qsub -v ARGUMENTS="my.yaml output=runs/a" pbs.sh
#
# Five minutes before the wall time the ranks are asked to stop: they write a checkpoint and end with status 75, and
# this script submits itself again. A lost rank or host costs the steps since the last checkpoint: the run goes on
# with the hosts that answer. Compute hosts must be allowed to qsub; else submit the same job again by hand.
#PBS -N octet
#PBS -l select=4:ncpus=16:mpiprocs=16
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
WALLTIME_S=${WALLTIME_S:-86400} # as above

cd "$PBS_O_WORKDIR" || exit
export OMP_NUM_THREADS=1
read -ra words <<<"$ARGUMENTS"
timeout --preserve-status --signal=USR1 $((WALLTIME_S - 300)) \
    "${OCTET:-octet}" train "${words[@]}" --hostfile "$PBS_NODEFILE" --restart 5
status=$?
if [ $status = 75 ]; then qsub -v ARGUMENTS="$ARGUMENTS" "$PBS_O_WORKDIR/pbs.sh"; fi
exit $status
