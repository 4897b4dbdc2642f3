# DAFS over the guest's verbs: end to end with this host, which has sockets alone, and within
# the guest. Sourced.
# shellcheck shell=bash

dafs=${CARGO_TARGET_DIR:-$repository/target}/debug/dafs
test_address=10.79.0.1
test_address_6=fd00:79::1
# Once so many files are copied, something happens.
enough=200
few=20
patience_of_suites=1200

# Gives the guest this RDMA device and no other: `guest_device siw eth0`. `test0` is a network
# interface that leads nowhere. Devices of software do not go while a program has them open.
guest_device() {
    guest "[ ! -e /tmp/dafs/serve.process ] || side stop
        for link in \$(rdma link | sed -n 's#^link \([^/]*\)/.*#\1#p'); do
            rdma link delete \$link & deleting=\$!
            for try in {1..300}; do kill -0 \$deleting 2>/dev/null || break; sleep 0.1; done
            [ \$try != 300 ] || { echo \$link is in use; exit 1; }
        done
        modprobe -a dummy rdma_rxe
        [ -e /sys/class/net/test0 ] || {
            ip link add test0 type dummy
            ip address add $test_address/24 dev test0
            ip -6 address add $test_address_6/64 dev test0 nodad
            ip link set test0 up
        }
        rdma link add ${1}0 type $1 netdev $2 && rdma link"
}

# Takes a device from those who use it. They have lost it as soon as the kernel lists it no more.
guest_loses() {
    guest "rdma link delete $1 >/dev/null 2>&1 &
        until ! rdma link | grep -q '^link $1/'; do sleep 0.1; done"
}

# What one side does of a row: see guest/side.
at() {
    local where=$1
    shift
    case $where in
    host) SIDE_HOME=$cache/dafs PATH=$(dirname "$dafs"):$PATH timeout "$patience" \
        "$here/guest/side" "$@" ;;
    guest) guest "timeout $patience side $(printf '%q ' "$@")" ;;
    esac
}

# The programs of a side, which has one way alone to speak.
program() {
    case $1 in
    host) echo dafs ;;
    guest) echo no_tcp dafs ;;
    esac
}

# siw connects: its client copies to our server and back.
dafs_accept() {
    url=dafs+verbs://$host_address:$port
    guest_device siw eth0 &&
        end_to_end guest "verbs:$host_address:$port" host --tcp "$host_address:$port"
}

# We connect: our client copies to its server and back. See `guest_serves` about the delay.
dafs_connect() {
    url=dafs://$guest_address:$port
    guest_device siw eth0 &&
        guest "tc qdisc replace dev eth0 root netem delay ${late}ms limit 10000" &&
        end_to_end host "tcp:$guest_address:$port" \
            guest --no-tcp --verbs "$guest_address:$port" || return
    guest "tc qdisc del dev eth0 root"
}

# end_to_end CLIENT WAY SERVER FLAG...: a tree goes there and back. A lock is held meanwhile, and
# the server is killed on both ways.
end_to_end() {
    local client=$1 way=$2 server=$3 flags=("${@:4}") with serving lock status=0
    read -ra with <<<"$(program "$client")"
    read -ra serving <<<"$(program "$server")"
    begin_sides && take_lock || return
    copy_through_a_crash export/tree "$server" tree "$url/" && is_locked &&
        copy_through_a_crash back "$client" "$url/tree/" back && is_locked || status=$?
    at "$client" run touch release
    wait "$lock" || { echo "whoever has the lock ends with status $?" && return 1; }
    [ "$status" = 0 ] &&
        at "$client" run "${with[@]}" lock --nonblock "$url/lock" true &&
        at "$server" stop &&
        is_same "$client" tree "$server" export/tree &&
        is_same "$client" tree "$client" back
}

# A client with a tree, and a server.
begin_sides() {
    at "$client" clear && at "$server" clear && at "$client" tree &&
        at "$server" serve "${flags[@]}" -- "${serving[@]}"
}

take_lock() {
    at "$client" lock "${with[@]}" lock "$url/lock" &
    lock=$!
    at "$client" await held 1 && is_locked
}

# copy_through_a_crash DIRECTORY SIDE FROM TO: copies, and kills the server when there are enough
# files in a directory of that side.
copy_through_a_crash() {
    start_copy "${@:3}"
    at "$2" await "$1" "$enough" && at "$server" crash || return
    echo "killed with $(at "$2" count "$1") files copied"
    is_copying && at "$server" serve "${flags[@]}" -- "${serving[@]}" && end_copy "$way"
}

start_copy() {
    copied=$logs/copy.$BASHPID
    at "$client" run "${with[@]}" cp -r "$@" >"$copied" 2>&1 &
    copy=$!
}

# A copy says nothing before its end.
is_copying() { [ ! -s "$copied" ] || { echo "the copy is over already" && return 1; }; }

# end_copy WAY: all files came, and the session was by that way at last. If not, the server's last
# words are said too.
end_copy() {
    local status=0
    wait "$copy" || status=$?
    cat "$copied"
    [ "$status" = 0 ] && grep -q "^1000 files, .* over $1" "$copied" && return
    at "$server" run tail -n 20 serve.log
    return 1
}

# Nobody else gets the lock, and is told so.
is_locked() {
    local said
    ! said=$(at "$client" run "${with[@]}" lock --nonblock "$url/lock" true 2>&1) &&
        grep -q 'another client has locked' <<<"$said" ||
        { echo "not locked: $said" && return 1; }
}

# is_same SIDE DIRECTORY SIDE DIRECTORY: whether a copy has all that the tree has.
is_same() {
    local tree copy
    tree=$(at "$1" describe "$2") && copy=$(at "$3" describe "$4") || return
    diff <(echo "$tree") <(echo "$copy") >"$logs/differences" ||
        { echo "$4 of the $3 differs:" && head -5 "$logs/differences" && return 1; }
    echo "$4 of the $3 is the same: $(grep -c '  ' <<<"$tree") files"
}

# The device goes while a copy is under way: the session comes back over TCP.
dafs_removal() {
    local client=guest server=host with=(dafs) serving=(dafs)
    local flags=(--tcp "$host_address:$port")
    url=dafs+verbs://$host_address:$port
    guest_device siw eth0 && begin_sides || return
    start_copy tree "$url/"
    at host await export/tree "$few" && guest_loses siw0 && is_copying &&
        end_copy "tcp:$host_address:$port" &&
        at host stop && is_same guest tree host export/tree
}

# The same of a device that the server has, too.
dafs_removal_roce() {
    local client=guest server=guest with=(dafs) serving=(dafs)
    local flags=(--verbs "$test_address:$port" --tcp "$test_address:$port")
    url=dafs+verbs://$test_address:$port
    guest_device rxe test0 && begin_sides || return
    start_copy tree "$url/"
    at guest await export/tree "$few" && guest_loses rxe0 && is_copying &&
        end_copy "tcp:$test_address:$port" &&
        at guest stop && is_same guest tree guest export/tree
}

# A program of tests in the guest, over one device: `suite PROGRAM KIND INTERFACE ADDRESS WORD...`.
# Its last lines and what it leaves out are in the log.
suite() {
    local program=$1 said=$logs/suite.$BASHPID status=0
    guest_device "$2" "$3" && late_answers || return
    guest "cd /tmp && DAFS_VERBS_ADDRESS=$4 timeout $patience_of_suites $program \
        --test-threads=1 --show-output $(printf '%q ' "${@:5}")" >"$said" 2>&1 || status=$?
    grep -E ' (is|are) (excused|skipped)' "$said" || true
    [ "$status" = 0 ] || grep -E 'FAILED|panicked' "$said"
    tail -n 3 "$said"
    return "$status"
}

# The registration cache over a device, with its checks: reads into buffers that come and go, for
# DAFS_STRESS_SECONDS. It says nothing until it ends. Each buffer is a mapping of its own, at
# addresses that others had: the C library would keep what is freed. The cache must have noticed.
stress() {
    local seconds=${DAFS_STRESS_SECONDS:-20}
    silence=$((silence + seconds))
    guest_device "$1" test0 || return
    guest "cd /tmp && DAFS_VERBS_ADDRESS=$test_address DAFS_STRESS_SECONDS=$seconds \
        MALLOC_MMAP_THRESHOLD_=65536 timeout $((patience + seconds)) \
        own_memory --test-threads=1 --nocapture" | tee "$logs/stress" &&
        grep -q 'invalidations: [1-9]' "$logs/stress"
}

# Answers to siw's connects are late on the guest's loopback, and they alone: see `guest_serves`.
# They are told by the words that MPA's reply begins with, behind headers of 52 bytes, and by
# its flags: a refusal is not to come after the end of its connection.
late_answers() {
    local reply="match u32 0x4d504120 0xffffffff at 52 match u32 0x65702046 0xffffffff at 60"
    reply+=" match u32 0 0x20000000 at 68"
    guest "tc qdisc replace dev lo root handle 1: prio priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
        tc qdisc replace dev lo parent 1:1 handle 2: netem delay ${late}ms limit 10000
        tc filter replace dev lo parent 1: prio 1 protocol ip u32 $reply flowid 1:1"
}

# The suite of the whole system with a server and clients in the guest, all of it but what is not
# for devices.
system() {
    local name reason skips=()
    while read -r name reason; do
        echo "left out: $name: $reason"
        skips+=(--skip "$name")
    done < <(not_for_devices && of_device "$1")
    suite system "$1" test0 "$test_address" "${skips[@]}"
}

# Cases of that suite, or modules of them, and what keeps them from running over a device.
not_for_devices() {
    local by_hand="TCP, or the rings of shared memory, by hand" cut="a relay of sockets cuts it"
    local realm="the guest has no key distribution centre"
    local long="it takes long where all is emulated"
    cat <<END
fencing::draining::an_answer_before_all a device answers for a member that is stopped
hostile::control:: $by_hand
hostile::frames:: $by_hand
hostile::flood:: $by_hand
hostile::rings:: $by_hand
hostile::storm:: $by_hand
auth::tls:: TLS is for TCP
auth::kerberos:: $realm
auth::tokens:: $realm
auth::returning:: $realm
batch::lost::what_was_submitted $cut
batch::lost::connections_that_break $cut
locks_client::locks_are_held_over_a_broken $cut
reconnect::lives::a_silent_network $cut
reconnect::lives::without_recovery $cut
reconnect::lives::a_session_with_a_server_known_by_its_name it is over TCP
sessions::a_thousand_tcp_sessions it is over TCP
sessions::a_busy_neighbour_in_memory it is over shared memory and TCP
batch::random:: $long
chains::random:: $long
delegations::coherence::nobody_reads_what_is_no_more $long
fencing::stress:: $long
procedures::hints::what_will_be_needed $long
reconnect::storm:: $long
undo::random_changes $long
END
}

# The same of one kind of device. What is about messages alone need not run over both.
of_device() {
    local once="it runs over the other kind of device"
    case $1 in
    siw) cat <<END ;;
hostile::buffers::memory_with_the_other siw grants reads of all that has a name
delegations:: $once
procedures:: $once
END
    rxe) cat <<END ;;
hostile::handles:: $once
hostile::requests:: $once
END
    esac
}
