# shellcheck shell=bash
# fashion_cut FOLDER TRAIN TEST: writes the first images of Fashion-MNIST and their labels as IDX files. To read and digest
# all of them takes each rank a third of a second, and that is much of a short run. Sourced by scripts and tests.
fashion_cut() {
    local source=/usr/share/datasets/fashion-mnist part count number
    mkdir -p "$1"
    for part in "train $2" "t10k $3"; do
        read -r part count <<<"$part"
        number=$(printf '\\x%02x\\x%02x' $((count / 256)) $((count % 256)))
        {
            printf "\\0\\0\\x08\\x03\\0\\0$number"
            tail -c +9 < <(zcat "$source/$part-images-idx3-ubyte.gz" | head -c $((16 + count * 784)))
        } >"$1/$part-images-idx3-ubyte"
        {
            printf "\\0\\0\\x08\\x01\\0\\0$number"
            tail -c +9 < <(zcat "$source/$part-labels-idx1-ubyte.gz" | head -c $((8 + count)))
        } >"$1/$part-labels-idx1-ubyte"
    done
}
