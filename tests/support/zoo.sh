# shellcheck shell=bash
# Networks that are trained for a few steps, to be held against other runtimes; sourced by tests/onnx/prove,
# tests/tflite/prove and tests/c_form/prove, which set
#     root, build   of the repository, of its build
#     zoo           the folder of networks NAME.onnx with NAME.npz (tests/golden/onnx)
#     train, test   how many images train, and how many are compared
# A model is one of Octet's, or zoo/NAME.

# shellcheck source=fashion.sh
source "$(dirname "${BASH_SOURCE[0]}")/fashion.sh"

# Of a network of the zoo: height and width of its images, its classes, its outputs of an image.
zoo_sizes() {
    sed -n "s/^$1 //p" zoo_sizes
}

# The data of all models, in the current folder; and the sizes of the zoo.
# shellcheck disable=SC2154
zoo_data() {
    local values=0
    /usr/bin/python3 -c 'if True:
        import numpy, pathlib, sys
        for path in pathlib.Path(sys.argv[1]).glob("*.npz"):
            file = numpy.load(path)
            print(path.stem, "x".join(map(str, file["x"].shape[2:])), file["y"].shape[1], file["y"][0].size)' \
        "$zoo" >zoo_sizes
    [ ! -f "$zoo/yolo.npz" ] || read -r _ _ values <<<"$(zoo_sizes yolo)"
    "$root/tests/onnx/make_data.py" . "$train" "$test" "$values"
    fashion_cut fashion "$train" $((test > 50 ? test : 50)) # runs evaluate 50
}

# Prints the data part of a model's recipe; its beginning is written to NAME.yaml.
zoo_recipe() {
    local name=$1 network="name: $1" size classes
    local grey=(data.format=idx data.path=fashion) words
    words=(data.format=npz data.path=colour.npz)
    case $name in
    cnn-small | fpn-small) words=("${grey[@]}") ;;
    unet-small) words=(data.format=npz data.path=maps.npz data.goal=map data.classes=4) ;;
    autoencoder) words=("${grey[@]}" data.goal=input loss.kind=mse 'metrics=[rmse]') ;;
    zoo/autoencoder) words=("${grey[@]}" data.goal=input loss.kind=mse 'metrics=[rmse]') ;;
    zoo/ds_cnn) words=("${grey[@]}") ;;
    zoo/mobilenet_v1) words=(data.format=npz data.path=pairs.npz) ;;
    zoo/unet) words=(data.format=npz data.path=colour_maps.npz data.goal=map) ;;
    zoo/yolo)
        words=(data.format=npz data.path=values.npz data.goal=values loss.kind=mse 'metrics=[rmse]')
        ;;
    esac
    if [ "$name" != "${name#zoo/}" ]; then
        network="onnx: $zoo/${name#zoo/}.onnx"
        read -r size classes _ <<<"$(zoo_sizes "${name#zoo/}")"
        words+=(float.epochs=0 data.size="$size")
        case $name in
        zoo/autoencoder | zoo/yolo) ;;
        *) words+=(data.classes="$classes") ;;
        esac
        [ -z "${OCT_ZOO:-}" ] || words+=(batch.size=16)
    else
        words+=(float.epochs=1 float.lr=0.02)
    fi
    printf 'schema: 1\noutput: %s\nmodel:\n  %s\n' "${name//\//-}" "$network" >"${name//\//-}.yaml"
    echo "${words[@]}"
}

# Prints the path of a model's data, as in its recipe.
zoo_path() {
    local words
    read -r -a words <<<"$(zoo_recipe "$1")"
    echo "${words[1]#data.path=}"
}

# zoo_train MODEL TARGET [KEY...]: trains it to NAME/model.int8.h5, where NAME has '-' for '/'.
zoo_train() {
    local model=$1 target=$2 shown=$2 name=${1//\//-} words certified=
    shift 2
    [[ " $* " != *" quant.bits=16 "* ]] || shown+=/16
    [ -z "${OCT_RECORDS:-}" ] || certified=$test # all that other runtimes will see
    read -r -a words <<<"$(zoo_recipe "$model")"
    case $target in
    pow2 | espdl-*) words+=(quant.batch_norm=folded) ;; # targets that shift
    esac
    "$build/octet" train "$name.yaml" data.mean='[0.286]' data.std='[0.353]' data.train_limit="$train" \
        data.test_limit="${certified:-50}" "${words[@]}" calibrate.batches=2 qat.epochs=1 qat.lr=0.002 \
        quant.target="$target" "$@" -q >"$name.log" 2>&1 || {
        tail -n 5 "$name.log" >&2
        return 1
    }
    [ -z "$certified" ] || zoo_certificate "$model" "$shown"
}

# Records what the certificate of a model has compared: the training's own evaluation and the int8 model.
zoo_certificate() {
    local name=${1//\//-} verified numbers
    verified=$("$build/octet" verify "$name/model.int8.h5" --data "$(zoo_path "$1")" --json) || return 1
    numbers=$({ "$build/tests/onnx/codes" "$name/model.int8.h5" 1 "$(zoo_path "$1")" 1 || true; } | head -n 1 |
        /usr/bin/python3 -c 'if True:
            import json, re, sys
            said = " ".join(json.loads(sys.argv[1])["verified"])
            golden, images = (int(re.search(p, said)[1].replace(",", ""))
                              for p in (r"([\d,]+) golden inputs?, all", r"([\d,]+) test images?: every"))
            values = json.loads(sys.stdin.readline())["values"]
            size = [sum(v["h"] * v["w"] * v["c"] for v in values if v["output"] == is_output) for is_output in (0, 1)]
            print(images, golden * size[0], 0, images * size[1], 0, 0)' "$verified") || return 1
    # shellcheck disable=SC2086
    zoo_record "$2" "$1" octet $numbers
}

# zoo_record TARGET MODEL RUNTIME IMAGES VALUES DIFFER OUTPUTS DIFFER NOTICES: adds a line to the file OCT_RECORDS, of
# which tests/proof/page makes a page. VALUES of layers and OUTPUTS were compared; NOTICES say what a file cannot keep.
zoo_record() {
    local IFS=$'\t'
    [ -z "${OCT_RECORDS:-}" ] || echo "$*" >>"$OCT_RECORDS"
}

# zoo_refused TARGET MODEL RUNTIME WHY: the same of a model that has no form there.
zoo_refused() {
    zoo_record "$1" "$2" "$3" refused "$4"
}
