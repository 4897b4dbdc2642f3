# The rows of NFS: the guest's kernel mounts what our server serves, on this host or, in some rows,
# in the guest. Sourced.
#
# DAFS_INTEROP_NFS=full does what takes an hour in an emulated guest: a clone of 10,000 files, ten
# ends of the server. Without it the same is done with less.
# shellcheck shell=bash

case ${DAFS_INTEROP_NFS:-small} in
full) tree_files=1000 many_names=20000 git_files=10000 c_files=60 transactions=250 kills=10 ;;
*) tree_files=60 many_names=2500 git_files=150 c_files=4 transactions=20 kills=3 ;;
esac
[ "${DAFS_INTEROP_NFS:-}" != full ] || { silence=3600 patience=3600; }
served=$cache/dafs/export
# What mounts use: tcp or rdma.
nfs_transport=tcp
# Where the server and the DAFS client of a row run: host or guest.
nfs_side=host
# The address of the server, and the one that its clients come from.
nfs_address=$host_address
nfs_from=$guest_address
# How mounts of version 3 lock: lock or nolock.
nfs_locking=nolock
# Between two ends of the server, so many changes are done.
changes_between=30

# In the tree of the tools, on the guest.
tools() { guest "tools $(printf '%q ' "$@")"; }

# What a side does for NFS: see guest/nfs.
nfs_at() {
    local where=$1
    shift
    case $where in
    host) (cd "$cache/dafs" && PATH=$(dirname "$dafs"):$PATH timeout "$patience" \
        "$here/guest/nfs" "$@") ;;
    guest) tools timeout "$patience" /lab/nfs "$@" ;;
    esac
}

# Starts the server with an empty directory: `nfs_serve VERSION [OPTION...]`.
nfs_serve() {
    nfs_version=$1
    local options=("${@:2}")
    nfs_port=$((port + 1000))
    url=dafs://$nfs_address:$port
    flags=(--tcp "$nfs_address:$port" --nfs "$nfs_address:$nfs_port" --nfs-from "$nfs_from")
    captured_port=$nfs_port
    if [ "$nfs_transport" = rdma ]; then
        captured_port=$((port + 2000))
        # Clients over RDMA have any port.
        flags+=(--nfs-rdma "${nfs_listener:-$nfs_address}:$captured_port" --nfs-any-port)
    fi
    flags+=("${options[@]}")
    # What a row that failed has left.
    guest "umount() { busybox umount -f -l \$1; }
        sed -n 's#^[^ ]* \(/tools/[mo][^ ]*\) nfs.*#\1#p' /proc/mounts | tac |
            while read -r place; do umount \$place; done"
    [ ! -e "$cache/dafs/serve.process" ] || at host crash 2>/dev/null
    at "$nfs_side" clear && nfs_start
}

nfs_start() { at "$nfs_side" serve "${flags[@]}" -- dafs; }

# nfs_mount DIRECTORY [OPTIONS [PATH]]: mounts in the guest. 77 if the server does not have the version.
nfs_mount() {
    local words=vers=$nfs_version,proto=$nfs_transport,port=$captured_port,sec=sys,hard${2:+,$2} said
    [ "$nfs_version" != 3 ] || words+=,mountport=$nfs_port,mountproto=tcp,$nfs_locking
    tools mkdir -p "$1"
    if ! said=$(tools mount -t nfs -o "$words" "$nfs_address:${3:-/}" "$1"); then
        echo "$said"
        ! grep -q 'Protocol not supported' <<<"$said" || {
            echo "the server does not offer version $nfs_version"
            return 77
        }
        return 1
    fi
    guest "grep ' /tools$1 .*proto=$nfs_transport' /proc/mounts"
}

nfs_unmount() { tools umount "$1"; }

# Ends the server. It must have nothing to complain of.
nfs_end() {
    at "$nfs_side" stop || return
    ! at "$nfs_side" run cat serve.log | grep -E 'ERROR|panicked'
}

# Whether the guest may be given any owner, which it may not if the server's user is not root.
owners() {
    if [ "$(awk '{ print $3 }' /proc/self/uid_map)" -gt 1000 ]; then
        echo owners
    else
        echo none
    fi
}

# is_same_tree NAME: both sides see the same of a directory.
is_same_tree() {
    local ours theirs
    nfs_at guest forget
    theirs=$(nfs_at guest describe "/mnt/$1") && ours=$(nfs_at host describe "export/$1") || return
    diff <(echo "$ours") <(echo "$theirs") >"$logs/differences" ||
        { echo "the guest sees another $1 (>):" && head -n 20 "$logs/differences" && return 1; }
    echo "both sides see the same $1, in $(wc -l <<<"$ours") lines"
}

# Files both ways, every change, and large listings. All packets must be as RFCs say.
nfs_files() {
    nfs_serve "$@" || return
    capture_begin
    nfs_files_captured || { local status=$? && capture_end && return "$status"; }
    capture_end && nfs_decodes
}

nfs_files_captured() {
    nfs_at host tree export/down "$tree_files"
    nfs_mount /mnt || return
    is_same_tree down &&
        nfs_at guest tree /mnt/up "$tree_files" && is_same_tree up &&
        nfs_at guest change /mnt/changed "$(owners)" && is_same_tree changed &&
        nfs_listing && nfs_below_the_root &&
        tools df /mnt &&
        nfs_unmount /mnt && nfs_end
}

nfs_listing() {
    nfs_at host many export/many "$many_names" || return
    [ "$(nfs_at guest list /mnt/many)" = "$(nfs_at host list export/many)" ] ||
        { echo "a listing of $many_names names differs" && return 1; }
    nfs_at guest removed /mnt/many && [ ! -e "$served/many" ]
}

# A directory below the root is mounted, to be read only.
nfs_below_the_root() {
    nfs_mount /other ro /down || return
    [ "$(nfs_at guest list /other)" = "$(nfs_at host list export/down)" ] ||
        { echo "a mount of /down shows something else" && return 1; }
    ! tools touch /other/x || return 1
    nfs_unmount /other
}

capture_begin() {
    captured=$logs/nfs-$nfs_version.pcap
    tcpdump --immediate-mode -B 65536 -U -n -i "$bridge" -w "$captured" tcp port "$captured_port" \
        >"$logs/tcpdump" 2>&1 &
    # Not the capture of `run_row`, which captures the rows over siw, too.
    nfs_capture=$!
    until grep -q listening "$logs/tcpdump"; do sleep 0.05; done
}

capture_end() {
    kill "$nfs_capture"
    wait "$nfs_capture" || true
}

# Whether tshark reads all calls and replies without complaint.
nfs_decodes() {
    local complaints calls what=rpc read=(-r "$captured")
    case $nfs_transport in
    tcp) read+=(-d "tcp.port==$nfs_port,rpc") ;;
    # This tshark wants padding in the chunk of a READ, which RFC 8166 forbids: NFS is left out.
    rdma) what=rpcordma && read+=(--disable-protocol nfs) ;;
    esac
    complaints=$(tshark "${read[@]}" \
        -Y "_ws.malformed || ($what && _ws.expert.severity == \"Error\")" 2>"$logs/tshark" |
        head -n 5)
    [ -z "$complaints" ] || { echo "tshark complains: $complaints" && return 1; }
    [ "$what" != rpc ] || what=nfs
    calls=$(tshark "${read[@]}" -Y "$what" -T fields -e frame.number 2>>"$logs/tshark" | wc -l)
    echo "$calls packets of $what decode"
    [ "$calls" -gt 100 ]
}

# Programs: git, make with a compiler, SQLite.
nfs_work() {
    nfs_serve "$1" && nfs_at host repository export/source.git "$git_files" || return
    nfs_mount /mnt || return
    timed nfs_at guest clone /mnt/source.git /mnt/clone &&
        timed nfs_at guest build /mnt/project "$c_files" &&
        timed nfs_at guest database /mnt/journal.db delete "$transactions" &&
        timed nfs_at guest database /mnt/wal.db wal "$transactions" &&
        nfs_unmount /mnt &&
        nfs_at host is_clone export/source.git export/clone &&
        nfs_at host judge export/journal.db "$transactions" &&
        nfs_at host judge export/wal.db "$transactions" &&
        nfs_end
}

timed() {
    local began=$SECONDS status=0
    "$@" || status=$?
    echo "$((SECONDS - began)) s: ${*:3}"
    return "$status"
}

# The server is killed while the guest writes and changes names.
nfs_killed() {
    local turn lines=0
    nfs_serve "$1" && nfs_mount /mnt && nfs_write /mnt /mnt || return
    for ((turn = 1; turn <= kills; turn++)); do
        nfs_written 1 $((lines + changes_between)) && at "$nfs_side" crash && nfs_start >/dev/null ||
            return
        lines=$(nfs_lines 1)
        echo "killed after $lines lines"
    done
    nfs_written 1 $((lines + changes_between)) && nfs_writers_end &&
        nfs_unmount /mnt && nfs_mount /mnt && nfs_judge /mnt /mnt && nfs_unmount /mnt && nfs_end
}

# nfs_write DIRECTORY...: starts a writer for each directory, whose number is the writer's.
nfs_write() {
    local writer=0 place
    guest "rm -f /tools/tmp/stop /tools/tmp/log.*"
    writers=()
    for place in "$@"; do
        writer=$((writer + 1))
        tools /lab/records write "$place" "$writer" "/tmp/log.$writer" /tmp/stop &
        writers+=($!)
    done
}

# nfs_lines WRITER: the number of lines in its log, which it may not have begun.
nfs_lines() { tools sh -c "cat /tmp/log.$1 2>/dev/null | wc -l"; }

# nfs_written WRITER LINES: waits until its log has so many lines.
nfs_written() { nfs_at guest await "/tmp/log.$1" "$2"; }

# No call of the writers may have failed.
nfs_writers_end() {
    local writer
    tools touch /tmp/stop || return
    for writer in "${writers[@]}"; do wait "$writer" || return; done
}

# nfs_judge DIRECTORY...: the mount and the served directory must have what each writer noted.
nfs_judge() {
    local writer=0 place
    for place in "$@"; do
        writer=$((writer + 1))
        tools /lab/records check "$place" "$writer" "/tmp/log.$writer" || return
        case $nfs_side in
        host)
            tools cat "/tmp/log.$writer" >"$logs/records.$writer" &&
                "$programs/records" check "$served" "$writer" "$logs/records.$writer" || return
            ;;
        guest) guest "records check /tmp/dafs/export $writer /tools/tmp/log.$writer" || return ;;
        esac
    done
}

# Locks of version 3 are another protocol (NLM). Its ports are found by rpcbind, so this needs one on
# either side; and a status monitor in the guest, which hears when the server has started again.
nfs_locks_of_3() {
    command -v rpcbind >/dev/null || { echo "this host has no rpcbind" && return 77; }
    # The socket of rpcbind is for this row alone.
    mount -t tmpfs run /run && mkdir /run/rpcbind || return
    rpcbind -f -h "$host_address" &
    local binder=$! status=0 nfs_locking=lock
    until [ -S /run/rpcbind.sock ]; do sleep 0.1; done
    guest "ip link set lo up" && tools sh -c "mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
        grep -q ^_rpc /etc/passwd || echo _rpc:x:100:65534::/run/rpcbind:/bin/false >>/etc/passwd
        rpcbind && rpc.statd --no-notify" || status=1
    [ $status != 0 ] || { nfs_serve 3 && nfs_mount /mnt actimeo=0 &&
        nfs_mount /other actimeo=0,nosharecache && nfs_locks &&
        nfs_unmount /other && nfs_unmount /mnt && nfs_end; } || status=$?
    guest "busybox killall rpc.statd rpcbind" || true
    kill "$binder" && wait "$binder" || true
    umount /run
    return $status
}

# Two mounts of the guest and a DAFS client beside the server see each other's changes.
nfs_shared() {
    local turn
    nfs_serve "$1" || return
    nfs_mount /mnt actimeo=0 || return
    nfs_mount /other actimeo=0,nosharecache || return
    for turn in 1 2 3 4 5; do
        echo "turn $turn, mount" >"$logs/mount.text"
        echo "turn $turn, DAFS." >"$logs/dafs.text"
        tools sh -c "echo 'turn $turn, mount' >/mnt/shared" &&
            dafs cat "$url/shared" | cmp - "$logs/mount.text" &&
            tools cat /other/shared | cmp - "$logs/mount.text" &&
            at "$nfs_side" run sh -c "echo 'turn $turn, DAFS.' >text" &&
            dafs cp text "$url/shared" &&
            tools cat /mnt/shared | cmp - "$logs/dafs.text" &&
            tools cat /other/shared | cmp - "$logs/dafs.text" &&
            tools mkdir "/other/d$turn" && tools test -d "/mnt/d$turn" &&
            dafs mv "$url/d$turn" "$url/e$turn" &&
            tools sh -c "[ ! -e /mnt/d$turn ] && [ -d /mnt/e$turn ] && [ -d /other/e$turn ]" &&
            tools rmdir "/mnt/e$turn" && ! dafs stat "$url/e$turn" 2>/dev/null ||
            { echo "in turn $turn" && return 1; }
    done
    if [ "$1" = 3 ]; then
        echo "left out: locks, which are another row in version 3"
    else
        nfs_locks || return
    fi
    nfs_unmount /other && nfs_unmount /mnt && nfs_end
}

dafs() { at "$nfs_side" run dafs "$@"; }

# Locks of the guest and of DAFS exclude each other.
nfs_locks() {
    tools touch /mnt/lock || return
    nfs_locked_by_guest "flock --nonblock /mnt/lock" "" &&
        nfs_locked_by_guest "/lab/records lock /mnt/lock 0 100" "--offset 50 --length 10" &&
        nfs_locked_by_guest "/lab/records lock /mnt/lock 100 100" "--offset 150" &&
        nfs_locked_by_dafs && nfs_locked_through_a_crash
}

# nfs_locked_by_guest COMMAND WORDS: while the guest has a lock, another mount and DAFS do not get it.
nfs_locked_by_guest() {
    local status=0 holder
    guest "rm -f /tools/tmp/held /tools/tmp/release"
    tools sh -c "$1 sh -c 'touch /tmp/held; until [ -e /tmp/release ]; do sleep 0.1; done'" &
    holder=$!
    tools sh -c 'until [ -e /tmp/held ]; do sleep 0.1; done'
    # shellcheck disable=SC2086 # Words.
    ! dafs lock --nonblock $2 "$url/lock" true >/dev/null 2>&1 ||
        { echo "DAFS has a lock of the guest: $1" && status=1; }
    [[ $1 != */records* ]] || dafs lock --nonblock --offset 1000 --length 1 "$url/lock" true ||
        { echo "DAFS does not get a free range beside: $1" && status=1; }
    ! tools sh -c "${1//mnt/other} true" ||
        { echo "another mount has a lock of the guest: $1" && status=1; }
    tools touch /tmp/release
    wait "$holder" || { echo "the guest's lock fails: $1" && status=1; }
    # shellcheck disable=SC2086
    dafs lock --nonblock $2 "$url/lock" true || { echo "not released: $1" && status=1; }
    return "$status"
}

# The guest gets its lock again from the next server, and nobody else does.
nfs_locked_through_a_crash() {
    local status=0 holder words=
    guest "rm -f /tools/tmp/held /tools/tmp/release"
    tools flock /mnt/lock sh -c 'touch /tmp/held; until [ -e /tmp/release ]; do sleep 0.1; done' &
    holder=$!
    tools sh -c 'until [ -e /tmp/held ]; do sleep 0.1; done'
    at "$nfs_side" crash && nfs_start >/dev/null && tools df /mnt >/dev/null || return
    ! dafs lock --nonblock "$url/lock" true || { echo "the lock is lost" && status=1; }
    tools touch /tmp/release
    wait "$holder" || { echo "the holder ends with an error" && status=1; }
    # Clients of version 3 do not say when they have reclaimed their locks, so the grace period lasts.
    [ "$nfs_version" = 3 ] || words=--nonblock
    # shellcheck disable=SC2086
    dafs lock $words "$url/lock" true || { echo "not released after a restart" && status=1; }
    return "$status"
}

nfs_locked_by_dafs() {
    local status=0 holder
    at "$nfs_side" lock dafs lock "$url/lock" &
    holder=$!
    at "$nfs_side" await held 1
    ! tools flock --nonblock /mnt/lock true || { echo "flock gets DAFS's lock" && status=1; }
    ! tools /lab/records lock /mnt/lock 5 5 || { echo "fcntl gets DAFS's lock" && status=1; }
    at "$nfs_side" run touch release
    wait "$holder" || { echo "the holder ends with an error" && status=1; }
    tools flock --nonblock /mnt/lock true || { echo "flock does not get a free lock" && status=1; }
    return "$status"
}
