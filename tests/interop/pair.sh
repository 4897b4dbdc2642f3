# Two programs that talk to each other, one on either side. Sourced.
# shellcheck shell=bash

peer=${CARGO_TARGET_DIR:-$repository/target}/debug/examples/peer
# For one program; emulated machines are slow.
patience=180
late=40
# Another for each row: the kernel may hold one for a while.
port=7174

# Runs a command on one side: `on host ...` or `on guest ...`.
on() {
    local side=$1
    shift
    case $side in
    host) timeout "$patience" "$@" ;;
    guest) guest "timeout $patience $*" ;;
    esac
}

# The same for a server of the guest, which need not say that it listens: the kernel does.
#
# What the guest sends is late meanwhile. siw answers a connect before it has told the socket
# whom to wake, so the first frame of a peer that is quicker than that lies there until more
# comes. On a network the peer is never so quick; next to an emulated processor it is.
guest_serves() {
    guest "tc qdisc replace dev eth0 root netem delay ${late}ms limit 10000
        timeout $patience $* & server=\$!
        until rdma resource show cm_id | grep -q 'LISTEN.*:$port' || ! kill -0 \$server
        do sleep 0.1; done
        echo listening; wait \$server; status=\$?
        tc qdisc del dev eth0 root
        exit \$status"
}

# pair SERVER -- CLIENT: both must end well. The server's output must say `listening`.
pair() {
    local server=() status=0
    while [ "$1" != -- ]; do server+=("$1") && shift; done
    shift
    local output=$logs/server.$BASHPID
    "${server[@]}" >"$output" 2>&1 &
    local process=$!
    until grep -q listening "$output"; do
        kill -0 "$process" 2>/dev/null || break
        sleep 0.1
    done
    echo "client: $*"
    "$@" || status=$?
    echo "client: status $status"
    echo "server: ${server[*]}"
    local server_status=0
    wait "$process" || server_status=$?
    cat "$output"
    echo "server: status $server_status"
    [ "$status" = 0 ] && [ "$server_status" = 0 ]
}

# What siw shall do from now on: `siw crc version=1 p2p`; without words, what Debian's does.
siw() {
    local crc=N strict=N version=2 p2p=N word
    for word in "$@"; do
        case $word in
        crc) crc=Y ;;
        version=*) version=${word#*=} ;;
        p2p) p2p=Y ;;
        esac
    done
    guest "cd /sys/module/siw/parameters && echo $crc >mpa_crc_required &&
        echo $strict >mpa_crc_strict && echo $version >mpa_version && echo $p2p >peer_to_peer"
}

# Runs a row with a capture of all that it brings on the network, which tshark must decode.
run_row() {
    local name=$1 status=0 capture seen=$logs/$1.packets
    shift
    # These capture what they need.
    case $1 in nfs_* | over_roce) "$@" && return || return ;; esac
    tcpdump --immediate-mode -B 65536 -U -l -n --print -i "$bridge" -w "$logs/$name.pcap" \
        not port 7 and tcp >"$seen" 2>&1 &
    capture=$!
    until grep -q listening "$seen" 2>/dev/null; do sleep 0.05; done
    "$@" || status=$?
    # What was on the way before this knock at a closed door has been captured when it has.
    (: <"/dev/tcp/$guest_address/9") 2>/dev/null || true
    local tries=0
    until grep -q '\.9: Flags' "$seen" || [ $((tries += 1)) -gt 400 ]; do sleep 0.05; done
    kill "$capture"
    wait "$capture" || true
    rm "$seen"
    [ "$status" = 0 ] || return "$status"
    decodes "$logs/$name.pcap"
    [ -z "${must_terminate:-}" ] || has_terminate "$logs/$name.pcap" "$must_terminate"
}

# tshark without what guesses that a short message belongs to a protocol it knows.
shark() {
    tshark --disable-protocol smb_direct --disable-protocol rpcordma "$@" \
        2>"$logs/tshark" || { cat "$logs/tshark" && return 1; }
}

# Whether tshark reads every byte of a capture as MPA, DDP and RDMAP, without complaint.
decodes() {
    local complaints
    complaints=$(shark -r "$1" -Y '_ws.malformed || iwarp_mpa.bad_length ||
        (iwarp_mpa && _ws.expert.severity == "Error")')
    [ -z "$complaints" ] || { echo "tshark complains: $complaints" && return 1; }
}

# Whether this host said the Terminate of this layer, type and code, two hexadecimal bytes.
has_terminate() {
    local said
    # Length field, DDP and RDMAP header are 20 bytes.
    said=$(shark -r "$1" -Y "iwarp_rdma.opcode == 7 && ip.src == $host_address" \
        -T fields -e tcp.payload | cut -c 41-44)
    [ "$said" = "$2" ] || { echo "Terminate '$said' instead of $2" && return 1; }
}
