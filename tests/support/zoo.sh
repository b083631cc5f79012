# shellcheck shell=bash
# Networks that are trained for a few steps, to be held against other runtimes; sourced by tests/onnx/prove,
# tests/tflite/prove and tests/c_form/prove, which set
#     root, build   of the repository, of its build
#     zoo           the folder of networks NAME.onnx with NAME.npz (tests/golden/onnx)
#     train, test   how many images train, and how many are compared
# A model is one of Octet's, or zoo/NAME.

# shellcheck disable=SC2154
# Of a network of the zoo: height and width of its images, its classes, its outputs of an image.
zoo_sizes() {
    /usr/bin/python3 -c 'if True:
        import numpy, sys
        file = numpy.load(sys.argv[1])
        print("x".join(map(str, file["x"].shape[2:])), file["y"].shape[1], file["y"][0].size)' "$zoo/$1.npz"
}

# The data of all models, in the current folder.
zoo_data() {
    local values=0
    [ ! -f "$zoo/yolo.npz" ] || read -r _ _ values <<<"$(zoo_sizes yolo)"
    "$root/tests/onnx/make_data.py" . "$train" "$test" "$values"
}

# What the recipe of a model says of its data; its beginning goes to NAME.yaml.
zoo_recipe() {
    local name=$1 network="name: $1" size classes
    local grey=(data.format=idx data.path=/usr/share/datasets/fashion-mnist) words
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

# Where the data of a model lie, as its recipe has it.
zoo_path() {
    local words
    read -r -a words <<<"$(zoo_recipe "$1")"
    echo "${words[1]#data.path=}"
}

# zoo_train MODEL TARGET [KEY...]: trains it to NAME/model.int8.h5, where NAME has '-' for '/'.
zoo_train() {
    local model=$1 target=$2 name=${1//\//-} words
    shift 2
    read -r -a words <<<"$(zoo_recipe "$model")"
    "$build/octet" train "$name.yaml" data.mean='[0.286]' data.std='[0.353]' data.train_limit="$train" \
        data.test_limit=50 "${words[@]}" calibrate.batches=2 qat.epochs=1 qat.lr=0.002 \
        quant.target="$target" "$@" -q >"$name.log" 2>&1 || {
        tail -n 5 "$name.log" >&2
        return 1
    }
}
