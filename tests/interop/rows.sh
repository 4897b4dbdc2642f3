# The rows of docs/interop.md: a name, a function and its words. Sourced.
#
# Words before `--` are for our peer (crates/dat/examples/peer), those after it for siw.
# shellcheck shell=bash

rows() {
    cat <<END
rping-accept rping_accept
rping-accept-crc rping_accept crc
rping-accept-crc-siw rping_accept -- crc
rping-accept-v1 rping_accept -- version=1
rping-accept-p2p rping_accept -- p2p
rping-connect rping_connect ready=none
rping-connect-crc rping_connect ready=none crc
rping-connect-ready-write rping_connect ready=write
rping-connect-ready-read rping_connect ready=read
script-accept script_accept
script-accept-crc script_accept crc
script-accept-crc-siw script_accept -- crc
script-accept-v1 script_accept -- version=1
script-accept-p2p script_accept -- p2p
script-accept-depth-1 script_accept depth=1
script-connect script_connect ready=none
script-connect-crc script_connect ready=none crc
script-connect-v1 script_connect plain depth=4
script-connect-ready-write script_connect ready=write
script-connect-ready-read script_connect ready=read crc
script-connect-depth-1 script_connect depth=1
connect-ready-send no_common_terms
accept-write-stag offence_accept write-stag 1100
accept-write-bounds offence_accept write-bounds 1101
accept-write-invalidated offence_accept write-invalidated 1100
accept-read-stag offence_accept read-stag 0100
accept-read-bounds offence_accept read-bounds 0101
accept-send-stag offence_accept send-stag 0109
accept-send-long offence_accept send-long 1205
connect-write-stag offence_connect write-stag 1/1/0x00
connect-write-bounds offence_connect write-bounds 1/1/0x01
connect-write-invalidated offence_connect write-invalidated 1/1/0x00
connect-read-stag offence_connect read-stag 0/1/0x00
connect-read-bounds offence_connect read-bounds 0/1/0x01
connect-send-stag offence_connect send-stag
hostile-frames hostile_frames
perftest-send-accept perftest_accept send
perftest-send-connect perftest_connect send
perftest-write-accept perftest_accept write
perftest-write-connect perftest_connect write
perftest-read-accept perftest_accept read
perftest-read-connect perftest_connect read
verbs-siw suite conformance siw test0 $test_address verbs::
system-siw system siw
system-roce system rxe
verbs-roce suite conformance rxe test0 $test_address verbs::
verbs-ipv6-roce suite conformance rxe test0 $test_address_6 verbs::
stress-siw stress siw
stress-roce stress rxe
dafs-accept dafs_accept
dafs-connect dafs_connect
dafs-removal dafs_removal
dafs-removal-roce dafs_removal_roce
nfs-3-files nfs_files 3
nfs-3-work nfs_work 3
nfs-3-shared nfs_shared 3
nfs-3-killed nfs_killed 3
nfs-3-locks nfs_locks_of_3
nfs-4.1-files nfs_files 4.1
nfs-4.1-work nfs_work 4.1
nfs-4.1-shared nfs_shared 4.1
nfs-4.1-killed nfs_killed 4.1
nfs-4.2-files nfs_files 4.2 --exactly-once memory
nfs-4.2-work nfs_work 4.2
nfs-4.2-shared nfs_shared 4.2
nfs-4.2-killed nfs_killed 4.2
nfs-rdma-3-files over_siw nfs_files 3
nfs-rdma-3-shared over_siw nfs_shared 3
nfs-rdma-3-killed over_siw nfs_killed 3
nfs-rdma-4.1-files over_siw nfs_files 4.1
nfs-rdma-4.1-shared over_siw nfs_shared 4.1
nfs-rdma-4.1-killed over_siw nfs_killed 4.1
nfs-rdma-4.2-files over_siw nfs_files 4.2
nfs-rdma-4.2-shared over_siw nfs_shared 4.2
nfs-rdma-4.2-killed over_siw nfs_killed 4.2
nfs-rdma-removed over_siw nfs_removed
nfs-rdma-3-roce over_roce nfs_both 3
nfs-rdma-3-roce-shared over_roce nfs_shared 3
nfs-rdma-3-roce-killed over_roce nfs_killed 3
nfs-rdma-4.1-roce over_roce nfs_both 4.1
nfs-rdma-4.1-roce-shared over_roce nfs_shared 4.1
nfs-rdma-4.1-roce-killed over_roce nfs_killed 4.1
nfs-rdma-4.2-roce over_roce nfs_both 4.2
nfs-rdma-4.2-roce-shared over_roce nfs_shared 4.2
nfs-rdma-4.2-roce-killed over_roce nfs_killed 4.2
nfs-rdma-removed-roce over_roce nfs_removed_roce 4.2
END
}

# Takes words apart at `--`: ours, and siw is set by the others.
set_words() {
    ours=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do ours+=("$1") && shift; done
    siw "${@:2}"
}

# The kernel's rping connects to ours.
rping_accept() {
    set_words "$@"
    pair on host "$peer" rping-server "$host_address:$port" count=10 "${ours[@]}" -- \
        on guest rping -c -a "$host_address" -p "$port" -C 10 -S 4096 -V
}

rping_connect() {
    set_words "$@"
    pair guest_serves rping -s -a "$guest_address" -p "$port" -C 10 -S 4096 -- \
        on host "$peer" rping-client "$guest_address:$port" count=10 size=4096 "${ours[@]}"
}

# The kernel's side of the script connects to ours, and drives.
script_accept() {
    set_words "$@"
    pair on host "$peer" target "$host_address:$port" "${ours[@]}" -- \
        on guest verbs driver "$host_address" "$port" everything
}

script_connect() {
    set_words "$@"
    pair guest_serves verbs target "$guest_address" "$port" -- \
        on host "$peer" driver "$guest_address:$port" "${ours[@]}"
}

# The kernel offends: we must say why in a Terminate.
offence_accept() {
    siw
    must_terminate=$2
    pair on host "$peer" target "$host_address:$port" -- \
        on guest verbs driver "$host_address" "$port" "$1"
}

# We offend: the kernel says why, and we must understand it.
offence_connect() {
    siw
    pair guest_serves verbs target "$guest_address" "$port" -- \
        on host "$peer" driver "$guest_address:$port" scene="$1" must="${2:-}"
}

# siw is never ready by a Send, and must be told that there is nothing in common; its kernel
# does not survive that. The test without it: terms_that_cannot_be_met_are_answered_by_a_terminate.
no_common_terms() {
    echo "siw of $(cut -d' ' -f2 "$cache/image/release") crashes on a Terminate at the start"
    return 77
}

# Broken frames by raw sockets against our server, on this host alone: each has its Terminate,
# sessions beside it notice nothing, and the server's memory stays as it is.
hostile_frames() {
    local system
    system=$(built_tests | sed -n 's/^system //p')
    cd "$repository/tests" && DAFS_BAD_FRAMES=${DAFS_BAD_FRAMES:-1000000} CARGO_MANIFEST_DIR=$PWD \
        "$system" hostile::flood::bad_frames --exact --nocapture
}

# perftest's measurements of bandwidth, whose figures are worth nothing here.
iterations=1000
bytes=16384

# measure VERB: perftest of the guest, without the server's address.
measure() {
    echo "ib_${1}_bw -R -F -d siw0 -p $port -n $iterations -s $bytes"
}

# The kernel's client comes to ours. Its report must be of all.
perftest_accept() {
    siw
    # shellcheck disable=SC2046 # Words.
    pair on host "$peer" perftest-server "$host_address:$port" scene="$1" \
        count="$iterations" size="$bytes" -- on guest $(measure "$1") "$host_address" |
        reports_all
}

perftest_connect() {
    siw
    # shellcheck disable=SC2046 # Words.
    pair guest_serves $(measure "$1") -- on host "$peer" perftest-client \
        "$guest_address:$port" scene="$1" count="$iterations" size="$bytes" |
        reports_all
}

# Passes perftest's output on. A failure before this in the pipe counts, too.
reports_all() {
    tee "$logs/perftest" && grep -qE "^ *$bytes +$iterations " "$logs/perftest"
}
