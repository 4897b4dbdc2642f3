# The rows of NFS over RDMA: what carries them, and what only they do. Sourced.
# shellcheck shell=bash

# Does a row over iWARP: the guest's kernel uses siw, and our server on this host plain sockets.
over_siw() {
    nfs_transport=rdma
    guest_device siw eth0 && guest "modprobe rpcrdma" && "$@"
}

# Does a row over RoCE, with verbs at both ends, which are in the guest.
over_roce() {
    nfs_transport=rdma nfs_side=guest nfs_address=$test_address nfs_from=$test_address
    nfs_listener=verbs:$test_address
    guest_device rxe test0 && guest "modprobe rpcrdma" && "$@"
}

# What was written over RDMA is read over TCP, and the other way round.
nfs_both() {
    nfs_serve "$1" && nfs_mount /mnt && nfs_at guest tree /mnt/up "$tree_files" &&
        nfs_mount_beside /other && nfs_at guest tree /other/down "$tree_files" || return
    nfs_at guest forget
    is_same_over_both up && is_same_over_both down &&
        nfs_unmount /other && nfs_unmount /mnt && nfs_end
}

# nfs_mount_beside DIRECTORY: mounts over TCP. Two mounts of version 4 would use one connection, because
# they find that their servers are one.
nfs_mount_beside() {
    local nfs_transport=tcp captured_port=$nfs_port nfs_version=3
    nfs_mount "$1" nosharecache
}

is_same_over_both() {
    local over_rdma over_tcp
    over_rdma=$(nfs_at guest describe "/mnt/$1") &&
        over_tcp=$(nfs_at guest describe "/other/$1") || return
    diff <(echo "$over_tcp") <(echo "$over_rdma") >"$logs/differences" ||
        { echo "$1 differs over RDMA (>):" && head -n 20 "$logs/differences" && return 1; }
    echo "$1 is the same over TCP and RDMA, in $(wc -l <<<"$over_tcp") lines"
}

# The client's device goes while two mounts, of versions 4.2 and 3, are written, and comes back.
nfs_removed() {
    local turn
    nfs_serve 4.2 && nfs_mount /mnt || return
    nfs_version=3
    nfs_mount /other && nfs_write /mnt /other || return
    for turn in 1 2; do
        nfs_write_more && guest_loses siw0 && nfs_stands_still && dafs stat "$url/" &&
            guest_gets siw0 siw eth0 || return
        echo "removed, and added again, after $(nfs_lines 1) and $(nfs_lines 2) lines"
    done
    nfs_write_more && nfs_writers_end && nfs_unmount /other && nfs_unmount /mnt && nfs_mount /mnt &&
        nfs_judge /mnt /mnt && nfs_unmount /mnt && nfs_end
}

# Waits until both writers have done more.
nfs_write_more() {
    local first second
    first=$(nfs_lines 1) && second=$(nfs_lines 2) &&
        nfs_written 1 $((first + changes_between)) && nfs_written 2 $((second + changes_between))
}

# Without their device the writers must wait.
nfs_stands_still() {
    local before after
    sleep 1
    before=$(nfs_lines 1).$(nfs_lines 2)
    sleep 5
    after=$(nfs_lines 1).$(nfs_lines 2)
    [ "$before" = "$after" ] || { echo "writes without a device: $before, $after" && return 1; }
}

# guest_gets NAME KIND INTERFACE: adds a device that was removed, as soon as it has gone entirely.
guest_gets() {
    guest "for try in {1..100}; do
            ! rdma link add $1 type $2 netdev $3 2>/dev/null || { rdma link; exit 0; }
            sleep 0.1
        done
        rdma link add $1 type $2 netdev $3"
}

# The device of server and client goes while the client writes over it. The server must go on over TCP,
# and serve the client over a device that comes later, one of another kind: soft-RoCE does not let the
# first one go before the server has ended.
nfs_removed_roce() {
    nfs_listener=verbs:0.0.0.0
    nfs_serve "$1" && nfs_mount /mnt && nfs_mount_beside /other && nfs_write /mnt /other &&
        nfs_write_more && guest_loses rxe0 || return
    nfs_written 2 $(($(nfs_lines 2) + changes_between)) && tools ls /other && dafs stat "$url/" ||
        { echo "not served over TCP" && return 1; }
    echo "removed after $(nfs_lines 1) lines"
    late_answers && guest_gets siw0 siw test0 && nfs_write_more && nfs_writers_end &&
        nfs_unmount /other && nfs_unmount /mnt && nfs_mount /mnt &&
        nfs_judge /mnt /mnt && nfs_unmount /mnt && nfs_end
}
