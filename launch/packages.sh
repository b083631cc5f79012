# shellcheck shell=bash disable=SC2034
# Debian packages: sourced by launch/quickstart, tests/run and the containers of launch/jobs.
#
#   oct_install_packages NAME...   installs those that are missing and says which; silent otherwise
#
# Where another program uses the package system, as the unattended upgrades of a fresh Debian do, it
# says which one and waits for it, OCT_APT_WAIT seconds at most (600).
#
# OCT_RELEASE is the system that this is, in words. Debian 12 and 13 are tested, and most packages have one name on
# both. _RUN is what a program that is built elsewhere needs.
OCT_PACKAGES_BUILD="build-essential cmake ninja-build pkg-config libopenmpi-dev openmpi-bin
    libhdf5-dev libseccomp-dev libyaml-dev libjansson-dev libssl-dev zlib1g-dev libzip-dev libjpeg-dev
    libpng-dev libprotobuf-c-dev protobuf-c-compiler libopenblas0 dataset-fashion-mnist"
OCT_PACKAGES_TEST="libcriterion-dev valgrind mold ccache locales mandoc zsh
    python3-venv python3-numpy python3-pil python3-h5py python3-onnx slurm-wlm munge iproute2
    gcc-arm-none-eabi binutils-arm-none-eabi qemu-system-arm libgemmlowp-dev"
OCT_PACKAGES_RUN="openmpi-bin libyaml-0-2 libjansson4 zlib1g libjpeg62-turbo libprotobuf-c1 libseccomp2 libgomp1 libopenblas0"

oct_os_release() { (source /etc/os-release && echo "${!1-}") 2>/dev/null || true; }
OCT_RELEASE=$(oct_os_release PRETTY_NAME)
case $(oct_os_release ID)-$(oct_os_release VERSION_ID) in
debian-12)
    OCT_PACKAGES_TEST+=" clang-format-14"
    OCT_PACKAGES_RUN+=" libopenmpi3 libhdf5-103-1 libzip4 libssl3 libpng16-16"
    ;;
debian-13) OCT_PACKAGES_RUN+=" libopenmpi40 libhdf5-310 libzip5 libssl3t64 libpng16-16t64" ;;
*) OCT_RELEASE="${OCT_RELEASE:-an unknown system}; tested are Debian 12 and 13" ;;
esac

# apt_get WORD...: apt-get again and again while it finds one of its locks taken. (Its own option
# DPkg::Lock::Timeout waits for dpkg's lock only, not for those of the lists and the archives.)
apt_get() {
    local errors held status waits=${OCT_APT_WAIT:-600} said=no
    local end=$((SECONDS + waits))
    errors=$(mktemp)
    while true; do
        status=0
        "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q "$@" \
            >&2 2>"$errors" || status=$?
        held=$(sed -n 's/^E: \(Could not get lock.*\)/\1/p' "$errors" | head -n 1)
        if [ $status = 0 ] || [ -z "$held" ] || [ $SECONDS -ge $end ]; then break; fi
        if [ $said = no ]; then echo "octet: $held; waiting for it, $waits s at most" >&2; fi
        said=yes
        sleep 2
    done
    cat "$errors" >&2
    rm -f "$errors"
    if [ $status != 0 ] && [ -n "$held" ]; then
        echo "octet: error: packages cannot be installed: $held; waited $waits s (OCT_APT_WAIT)" >&2
    fi
    return $status
}

oct_install_packages() {
    local package missing=() as_root=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "octet: no apt-get here; needed are what Debian calls: $*" >&2
        return 0
    fi
    for package in "$@"; do
        if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            missing+=("$package")
        fi
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "octet: error: packages are missing: ${missing[*]}" >&2
            echo "    run as root: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "octet: installing ${missing[*]}" >&2
    apt_get update || return 1
    apt_get install -y --no-install-recommends "${missing[@]}" || {
        echo "octet: error: apt-get could not install ${missing[*]}" >&2
        return 1
    }
}
