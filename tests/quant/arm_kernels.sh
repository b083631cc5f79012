#!/bin/sh
# The kernels for ARM against the reference under an emulator; by hand, from anywhere:
#     apt-get install gcc-aarch64-linux-gnu qemu-user
#     tests/quant/arm_kernels.sh
# On an ARM machine itself: CC=cc EMULATOR= tests/quant/arm_kernels.sh
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${CC:=aarch64-linux-gnu-gcc}" "${EMULATOR=qemu-aarch64 -cpu max}"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags="-std=c17 -O2 -ffp-contract=off -fno-math-errno -D_GNU_SOURCE -Wall -Wextra -Werror -I$root"
for source in "$root"/quant/rounding/*.c "$root"/quant/kernel/*.c "$root"/core/base/*.c "$root"/core/tensor/*.c \
    "$root"/core/product/*.c "$root"/tests/quant/arm_kernels.c; do
    case $source in
    */avx*) continue ;;
    */neondot.c) extra=-march=armv8.2-a+dotprod ;;
    *) extra= ;;
    esac
    $CC $flags $extra -c "$source" -o "$out/$(basename "$source" .c).o"
done
$CC -static "$out"/*.o -o "$out/arm_kernels" -lm -lpthread
$EMULATOR "$out/arm_kernels"
