# The virtual machine and the network it is on. Sourced, inside of the namespaces that
# `enter_namespaces` makes: they end with their first process, and everything in them too.
# shellcheck shell=bash

host_address=10.78.0.1
guest_address=10.78.0.2
bridge=interop0
# Nothing of ours is silent for so many seconds in a guest that lives.
silence=300
# Seconds after which a silent guest is asked whether it has ended.
pulse=20
asked=0

# Starts the calling script anew in a network and a process namespace of its own. No root is
# needed where users may have namespaces.
enter_namespaces() {
    [ -z "${DAFS_INTEROP_INSIDE:-}" ] || return 0
    local user=()
    [ "$(id -u)" = 0 ] || user=(--map-root-user)
    export DAFS_INTEROP_INSIDE=1
    # A mount of DAFS that exists now would stay in these namespaces after it was unmounted outside,
    # and its process with it: tests beside this script would wait for its end.
    # shellcheck disable=SC2016 # The inner shell expands it.
    exec unshare "${user[@]}" --net --pid --fork --kill-child --mount-proc -- \
        sh -c 'umount --lazy --all --types fuse.dafs 2>/dev/null; exec "$0" "$@"' "$0" "$@"
}

# Whether the host allows what `guest_start` needs; says what it does not.
can_start() {
    local user=()
    [ "$(id -u)" = 0 ] || user=(--map-root-user)
    unshare "${user[@]}" --net --pid --fork --mount-proc -- \
        ip tuntap add dev probe0 mode tap 2>/dev/null && return
    say "no network namespace with a tap device can be made here: be root, with /dev/net/tun"
    return 1
}

network_up() {
    ip link set lo up
    ip link add "$bridge" type bridge
    ip address add "$host_address/24" dev "$bridge"
    ip tuntap add dev tap0 mode tap
    ip link set tap0 master "$bridge" up
    ip link set "$bridge" up
}

# Boots the guest with the files of `guest/` and those named here in its /lab.
guest_start() {
    local files
    files=$(mktemp -d)
    mkdir "$files/lab"
    cp "$here"/guest/{init,agent,side,tools,nfs} "$@" "$files/lab/"
    ln -s lab/init "$files/init"
    (cat "$cache/image/root.cpio"
        cd "$files" && find . | cpio -o -H newc --owner 0:0 --quiet) >"$cache/initramfs"
    rm -rf "$files"
    local disk=()
    [ ! -e "$cache/tools.ext4" ] ||
        disk=(-drive "file=$cache/tools.ext4,format=raw,if=virtio,readonly=on")
    # More words for QEMU.
    local more=()
    read -ra more <<<"${DAFS_INTEROP_QEMU:-}" || true
    # DAFS_INTEROP_ACCEL=kvm makes a guest that is ten times faster, where it can be had.
    qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
        -accel "${DAFS_INTEROP_ACCEL:-tcg,thread=multi}" -cpu "${DAFS_INTEROP_CPU:-max}" -m 1024 \
        -smp "${DAFS_INTEROP_CPUS:-2}" \
        -kernel "$cache/image/vmlinuz" -initrd "$cache/initramfs" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off net.ifnames=0 ${kernel_words:-}" \
        -serial "file:$cache/console" -device virtio-rng-pci "${disk[@]}" \
        -netdev tap,id=net0,ifname=tap0,script=no,downscript=no \
        -device virtio-net-pci,netdev=net0,mac=52:54:00:78:00:02 "${more[@]}" \
        </dev/null >"$cache/qemu.log" 2>&1 &
    guest_process=$!
    while ! guest true 2>/dev/null; do
        kill -0 "$guest_process" 2>/dev/null || {
            cat "$cache/qemu.log" >&2
            tail -20 "$cache/console" >&2
            die "the guest does not start"
        }
        sleep 0.2
    done
}

# Runs a script in the guest: its output, and its status. Once in hundreds of rows the last words do
# not come, though the script has ended; so a guest that is silent is asked anew.
guest() {
    local name=$BASHPID.$((asked += 1)) left=$silence status=125 line agent
    exec {agent}<>"/dev/tcp/$guest_address/7" || return 125
    printf '%s\0%s\0' "$name" "$*" >&"$agent"
    while true; do
        if IFS= read -r -t "$pulse" line <&"$agent"; then
            left=$silence
            if [[ $line =~ ^(.*)#status\ ([0-9]+)$ ]]; then
                status=${BASH_REMATCH[2]}
                [ -z "${BASH_REMATCH[1]}" ] || printf '%s\n' "${BASH_REMATCH[1]}"
                break
            fi
            printf '%s\n' "$line"
        elif [ $? -le 128 ]; then
            break
        elif line=$(ended "$name"); then
            status=$line
            echo "the guest's last words were lost; it has ended with status $status" >&2
            break
        elif [ $((left -= pulse)) -le 0 ]; then
            break
        fi
    done
    exec {agent}>&-
    return "$status"
}

# The status of a script of that name, if it has ended.
ended() {
    local word agent
    exec {agent}<>"/dev/tcp/$guest_address/7" || return 1
    printf '%s\0%s\0' "question" "cat 'ended.$1'" >&"$agent"
    IFS= read -r -t 10 word <&"$agent" || true
    exec {agent}>&-
    [[ $word =~ ^[0-9]+$ ]] && printf '%s' "$word"
}
