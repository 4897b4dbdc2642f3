# What the scripts here share. Sourced, never run.
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # For those who source this.
repository=$(cd "$here/../.." && pwd)
# Packages, the image and the logs of the last run; nothing else is written outside of `target`.
cache=${DAFS_INTEROP_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/dafs-interop}

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# What the host needs, as `program package`.
host_needs="qemu-system-x86_64 qemu-system-x86
cpio cpio
depmod kmod
xz xz-utils
make make
gcc gcc
ip iproute2
tshark tshark
tcpdump tcpdump
mke2fs e2fsprogs
git git
sqlite3 sqlite3"
# What the build of a kernel module wants beside a compiler.
host_packages="libelf1 libc6-dev"

# The programs that are missing, as packages; empty if all are there.
missing_packages() {
    local program package
    while read -r program package; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || printf '%s ' "$package"
    done <<<"$host_needs"
    local compiler
    compiler=$(kernel_compiler)
    [ -z "$compiler" ] || command -v "$compiler" >/dev/null || printf '%s ' "$compiler"
}

# The kernel's packages, all of one version: what `linux-image-amd64` now stands for.
kernel_image() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        awk '$1 == "Depends:" && $2 ~ /^linux-image-/ && !seen++ { print $2 }'
}

# The compiler that Debian builds its modules with, e.g. gcc-12.
kernel_compiler() {
    local image
    image=$(kernel_image)
    [ -n "$image" ] || return 0
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances "linux-headers-${image#linux-image-}" 2>/dev/null |
        awk '$1 == "Depends:" && $2 ~ /^gcc-[0-9]+$/ && !seen++ { print $2 }'
}

install_packages() {
    [ "$(id -u)" = 0 ] || die "--install-deps needs root, for apt-get"
    apt-get update -qq
    local packages
    packages=$(missing_packages)
    # shellcheck disable=SC2086 # Lists of words.
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $packages $host_packages
}

apt=(apt-get -qq -o APT::Sandbox::User=root)
# As if nothing were installed, so that everything a package needs comes along.
apart=(-o Dir::State::status=/dev/null -o "Dir::Cache::archives=$cache/packages"
    -o Debug::NoLocking=1 --no-install-recommends -y)

# Unpacks these packages, and those that they need: `unpack DIRECTORY PACKAGE...`.
unpack() {
    local target=$1 package file
    shift
    mkdir -p "$cache/packages/partial"
    "${apt[@]}" "${apart[@]}" --download-only install "$@" >/dev/null
    for package in $("${apt[@]}" "${apart[@]}" -s install "$@" |
        awk '$1 == "Inst" { print $2 }'); do
        file=$(find "$cache/packages" -name "${package}_*.deb" -printf '%T@ %p\n' |
            sort -n | tail -1 | cut -d' ' -f2)
        dpkg-deb --fsys-tarfile "$file" | tar -x -C "$target" --keep-directory-symlink \
            --no-same-owner --exclude './usr/share/*' --exclude './var/*'
    done
}
