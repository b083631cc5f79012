# shellcheck shell=bash disable=SC2034
# Debian packages: sourced by launch/quickstart and tests/run.
#
#   oct_install_packages NAME...   installs those that are missing and says which; silent otherwise
#
# Lists, so that both scripts mean the same:
OCT_PACKAGES_BUILD="build-essential cmake ninja-build pkg-config libopenmpi-dev openmpi-bin
    libopenblas-dev libhdf5-dev libyaml-dev libjansson-dev libssl-dev zlib1g-dev
    dataset-fashion-mnist"
OCT_PACKAGES_TEST="libcriterion-dev clang-format-14 valgrind"

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
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 || return 1
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}" >&2 || {
        echo "octet: error: apt-get could not install ${missing[*]}" >&2
        return 1
    }
}
