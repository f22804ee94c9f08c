# SPDX-License-Identifier: Apache-2.0
#
# Hosts for the tests that need several: network namespaces with cables to a bridge,
# which end with the script. Sourced first, since the script is started again.
skip() {
    echo "skipped: $*"
    exit 77
}

# Starts the script again, with its arguments, in a network namespace of its own, which
# has the bridge and needs these tools.
enter_net() { # "TOOL ..." ARGUMENT...
    local tool tools=$1
    shift
    if [ -z "${XRAY_NET:-}" ]; then
        [ "$(id -u)" = 0 ] || skip "network namespaces need root"
        for tool in ip unshare mount pgrep $tools; do
            command -v "$tool" >/dev/null || skip "$tool is not installed"
        done
        unshare --net --mount true 2>/dev/null || skip "this system makes no network namespaces"
        exec env XRAY_NET=1 unshare --net --mount "$0" "$@"
    fi
    mkdir -p /run/netns && mount -t tmpfs none /run/netns || skip "no tmpfs for the namespaces"
    # With an address of its own: otherwise it takes that of a cable that comes later,
    # and hosts that know the former one do not reach it for seconds.
    ip link add br0 address 02:00:0a:4d:00:01 type bridge 2>/dev/null || skip "this kernel has no bridges"
    ip link set lo up
    ip link set br0 up
}

# A host with the address 10.77.0.NUMBER on its eth0, and a cable to-NAME.
make_host() { # NAME NUMBER
    ip netns add "$1" || skip "network namespaces cannot be named"
    ip link add "to-$1" type veth peer name eth0 netns "$1" 2>/dev/null || skip "this kernel has no veth"
    set_up_host "$@"
}

set_up_host() { # NAME NUMBER
    ip link set "to-$1" master br0 up
    ip -n "$1" addr add "10.77.0.$2/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" link set lo up
}

# The same, whose cable delays and loses what is sent: the process `cable` of
# tests/fakes/cable.c. False where the system has none, which the cable says.
make_far_host() { # NAME NUMBER SEED DELAY JITTER LOSS
    local code=0
    ip netns add "$1"
    "$XRAY_BUILD/tests/fakes/cable" "/proc/$$/ns/net" "to-$1" "/run/netns/$1" eth0 "${@:3}" &
    cable=$!
    until ip -n "$1" link show eth0 >/dev/null 2>&1; do
        if ! kill -0 "$cable" 2>/dev/null; then
            wait "$cable" || code=$?
            [ "$code" = 77 ] || fail "the cable ended with status $code"
            return 1
        fi
        sleep 0.01
    done
    set_up_host "$1" "$2"
}
