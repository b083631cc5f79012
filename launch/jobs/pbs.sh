#!/bin/bash
# Trains on several hosts under PBS (OpenPBS, PBS Professional), by ssh to the hosts of its list:
#
#   qsub -v ARGUMENTS="my.yaml output=runs/a" pbs.sh
#
# Five minutes before the wall time the ranks are asked to stop: they write a checkpoint and end with status 75, and
# this script submits itself again. A lost rank or host costs the steps since the last checkpoint: the run goes on
# with the hosts that answer. Compute hosts must be allowed to qsub; else submit the same job again by hand.
# Options of the first qsub other than -v, such as -l, are not repeated: write them here. Words with commas want
# ARGUMENTS in the environment: ARGUMENTS="my.yaml init_skip=[a,b]" qsub -v ARGUMENTS pbs.sh
#PBS -N octet
#PBS -l select=4:ncpus=16:mpiprocs=16
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
WALLTIME_S=${WALLTIME_S:-86400} # as above

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

cd "$PBS_O_WORKDIR" || exit
export ARGUMENTS WALLTIME_S OCTET="${OCTET:-octet}" OMP_NUM_THREADS=1
script=$PBS_O_WORKDIR/pbs.sh
[ -r "$script" ] || script=$0 # another name or folder: PBS's own copy
read -ra words <<<"$ARGUMENTS"
timeout --preserve-status --signal=USR1 $((WALLTIME_S - 300)) \
    "$OCTET" train "${words[@]}" --hostfile "$PBS_NODEFILE" --restart 5
status=$?
# By their names: a value in this list would end at its first comma, as in init_skip=[a,b].
if [ $status = 75 ] && again "${words[@]}"; then qsub -v ARGUMENTS,WALLTIME_S,OCTET "$script"; fi
exit $status
