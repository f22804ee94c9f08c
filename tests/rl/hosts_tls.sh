#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A run is refused if [runtime] tls would not encrypt all of it, or cannot.
# rl.hosts_net runs over TLS.
. "$(dirname "$0")/lib.sh"
make_task
sed -i "s/^\[run\]$/&\nranks = 2\nthreads = 1\ncomm = tcp\n[placement]\nactor = 0\nrollout = 1\n[run]/" "$work/run.ini"
tls=(--set run.runtime=hosts --set runtime.tls=true --set runtime.interface=lo)
# A folder in which the loader looks for the library first, and does not find one.
mkdir "$work/none"
touch "$work/none/libgnutls.so.30" "$work/none/libgnutls.so"
missing="this host has no GnuTLS of version 3.6.5 or later; install libgnutls30"

refuses() { # SENTENCE COMMAND ...
    if "${@:2}" >/dev/null 2>"$work/err"; then fail "not refused: $1"; fi
    [ "$(grep -cF -- "$1" "$work/err")" = 1 ] || fail "expected \"$1\" once, but: $(cat "$work/err")"
}
check() {
    "$XRAY_BIN" check "$work/run.ini" "${tls[@]}" "$@"
}
without() { # COMMAND ...: where there is no library
    LD_LIBRARY_PATH=$work/none "$@"
}
refuses "[runtime] tls: $missing" without check --set placement.hosts=localhost:2
refuses "[runtime] tls is true, but $missing" without train "$work/none/run" "${tls[@]}" --set placement.hosts=localhost:2

# The collectives of a role with ranks on several hosts would not be encrypted.
plain="[runtime] tls: the collectives of [run] comm = tcp between the hosts of [placement] actor are not encrypted; place these ranks on one host, or set tls = false"
refuses "$plain" check --set placement.hosts=a,b --set placement.actor=all
refuses "$plain" train "$work/spans" "${tls[@]}" --set placement.hosts=a,b --set placement.actor=all
refuses "[run] runtime = apart does not know it" env XRAY_PLUGIN_PATH="$XRAY_BUILD/tests/fakes" "$XRAY_BIN" check \
    "$work/run.ini" --set run.runtime=apart --set runtime.tls=true

if ! check --set placement.hosts=a,b >/dev/null 2>"$work/err"; then
    grep -qF "$missing" "$work/err" || fail "TLS is refused: $(cat "$work/err")"
    echo "skipped: $missing"
    exit 77
fi
echo "hosts over TLS: ok"
