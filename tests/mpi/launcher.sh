#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The launcher mpi without a run: everybody gets the place of his host, in the order of
# hosts, whichever rank he has, and each kind of MPI ends the job with status 0.
#
#     launcher.sh test-mpi-peer
set -euo pipefail
. "$(dirname "$0")/lib.sh"
peer=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}

places() { # NUMBER: each is given out once
    local code=0
    timeout 100 "${start[@]}" -n "$1" "$peer" drive "$1" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 0 ] || fail "${start[0]} ended with $code: $(cat "$work/err")"
    for ((i = 0; i < $1; i++)); do
        grep -qx "place $i is on $(uname -n)" "$work/out" || fail "place $i: $(cat "$work/out")"
        [ "$(grep -cx "a Workhorse: tcp:here:1:$i secret$i" "$work/out")" = 1 ] || fail "place $i: $(cat "$work/out")"
    done
    grep -q "the job of MPI ends with the first Workhorse that is lost" "$work/err" || fail "again: $(cat "$work/err")"
    nothing_left "$1 places"
}

# Nobody drives: the others are told, and nobody waits.
nobody() {
    ! timeout 100 "${start[@]}" -n 3 "$peer" drive >"$work/out" 2>"$work/err" || fail "nobody drives: status 0"
    nothing_left "nobody drives"
}

for name in mpirun.openmpi mpirun mpiexec.mpich; do
    find_mpirun "$name" || continue
    places 1
    places 3
    nobody
done
echo "mpi.launcher: ok"
