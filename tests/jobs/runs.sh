# shellcheck shell=bash
# Small runs and their comparison: sourced by the scripts of this folder, which name $root, $OCTET and $folder.

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# shellcheck source=../support/fashion.sh
source "$root/tests/support/fashion.sh"
fashion_cut "$folder/data" 480 48

# Sets words to the recipe and the changes of a run of 41 steps in $folder/runs/NAME, with a checkpoint every 2 steps.
words_of() {
    words=("$root/launch/recipes/fashion-mnist.yaml" "output=$folder/runs/$1" "data.path=$folder/data" threads=1
        batch.size=24 batch.leaf=4 float.epochs=1 calibrate.batches=1 qat.epochs=1
        evaluate.every=0 checkpoint.every=2 checkpoint.keep=100 ranks.deadline=20)
}

# What all others are compared with: runs/one.
one_process() {
    words_of one
    "$OCTET" train "${words[@]}" --quiet >"$folder/one.out" 2>&1 || fail "one process failed: $(cat "$folder/one.out")"
}

# same_files NAME WHAT: the model and every checkpoint of runs/one are there with the same bytes.
same_files() {
    local file count=0
    for file in "$folder"/runs/one/model.int8.h5 "$folder"/runs/one/checkpoints/step-*.h5; do
        cmp "$file" "${file/\/runs\/one\///runs/$1/}" || fail "$2: other bytes than those of one process"
        count=$((count + 1))
    done
    [ $count -ge 20 ] || fail "$2: there are only $count files to compare"
    echo "$2: $count files as of one process"
}

has_checkpoint() {
    [ -n "$(find "$folder/runs/$1/checkpoints" -name 'step-*.h5' 2>/dev/null)" ]
}
