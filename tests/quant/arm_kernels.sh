#!/bin/sh
# The tests of the kernels for ARM under an emulator, as they are but without Criterion; by hand, from anywhere:
#     apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
#     tests/quant/arm_kernels.sh [TEST]...
#     tests/quant/arm_kernels.sh count         instructions of a layer by each table (qemu-aarch64, minutes)
# Integer tests run on each kind of processor that has tables of its own, as its best ones differ.
# On an ARM machine itself: CC=cc EMULATOR= PROCESSORS=here tests/quant/arm_kernels.sh
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${CC:=aarch64-linux-gnu-gcc}" "${EMULATOR=qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu}" "${PROCESSORS=cortex-a72 neoverse-n1 max}"
[ $# -gt 0 ] || set -- quant/test_kernels quant/test_qconv quant/test_epilogue quant/test_int8_backward core/test_depthwise core/test_conv
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/octet"
sed 's/@[A-Za-z_]*@/0/g' "$root/core/include/octet/version.h.in" >"$out/octet/version.h"
flags="-std=c17 -O2 -ffp-contract=off -fno-math-errno -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-missing-field-initializers -fopenmp -I$root -I$root/core/include -I$out"
for source in "$root"/core/base/*.c "$root"/core/tensor/*.c "$root"/core/product/*.c "$root"/core/kernel/*.c \
    "$root"/quant/rounding/*.c "$root"/quant/kernel/*.c; do
    case $source in
    */kernel/a[vm]x* | */kernel/float_a[vm]x*) continue ;;
    */neondot.c) extra=-march=armv8.2-a+dotprod ;;
    */neoni8mm.c) extra=-march=armv8.2-a+i8mm ;;
    *) extra= ;;
    esac
    echo "$extra -c $source -o $out/$(basename "$source" .c).o"
done | xargs -P "$(nproc)" -L 1 $CC $flags
if [ "${1-}" = count ]; then
    $CC $flags "$root/tests/quant/arm_count.c" "$out"/*.o -o "$out/arm_count" -lm -lpthread
    instructions() { # of arm_count: a line of the emulator's log each
        $EMULATOR max -singlestep -d exec,nochain -D /dev/stdout "$out/arm_count" "$@" | wc -l
    }
    for table in "bytes ref" "bytes neon" "bytes neondot" "bytes neoni8mm" "floats ref" "floats neon"; do
        one=$(instructions $table 1)
        echo "$table: $(($(instructions $table 2) - one))"
    done
    exit
fi
for test in "$@"; do
    name=$(basename "$test")
    $CC $flags -I"$root/tests/support/alone" -DOCT_FEWER_SHAPES "$root/tests/$test.c" "$out"/*.o \
        -o "$out/$name" -lm -lpthread
    for processor in $PROCESSORS; do
        case $test,$processor in
        core/*,cortex-a72 | core/*,neoverse-n1) continue ;; # float tables are one for all
        esac
        echo "$test, $processor:"
        ${EMULATOR:+$EMULATOR "$processor"} "$out/$name"
    done
done
