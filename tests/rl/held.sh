# SPDX-License-Identifier: Apache-2.0
#
# Shared by tests that harm a run while one of its ranks is held in a call.
count=2

# held NAME FAULT CALL [--set ...]: a run in the background, up to the call in which
# the fault holds one of its ranks. `duo` sets what the runs have in common, `count`
# is the number of their Workhorses, and run.ini is that of lib.sh. `env` becomes the
# program, so that `pid` is its own; and a shell ignores SIGINT for what runs in the
# background.
held() {
    local name=$1
    rm -f "$SICK_FLAG"*
    SICK=$2 SICK_AT=$3 env --default-signal=INT "$XRAY_BIN" train "$work/run.ini" \
        --set "trainer.default_local_dir=$work/$name" "${duo[@]}" "${@:4}" >"$work/out" 2>"$work/err" &
    pid=$!
    until [ -e "$SICK_FLAG" ]; do
        kill -0 "$pid" 2>/dev/null || fail "$name ended before it was held: $(cat "$work/err")"
        sleep 0.01
    done
    horses=$(pgrep -P "$pid" | sort -n)
    [ "$(wc -w <<<"$horses")" = "$count" ] || fail "$name does not have $count Workhorses: $(cat "$work/err")"
}

hit() { kill "-$1" "$(tail -1 <<<"$horses")"; } # the last Workhorse

ended() { # NAME CODE
    local code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    [ "$code" = "$2" ] || fail "$1 ended with $code: $(cat "$work/err")"
    gone
}

# No process of the run is left.
gone() {
    local horse
    for horse in $horses; do
        for _ in $(seq 40); do
            [ -e "/proc/$horse" ] || continue 2
            sleep 0.1
        done
        fail "Workhorses are left of $horses"
    done
}

# lost NAME REASON HOST SECONDS COMMAND ...: after the command it is said within so many
# seconds which Workhorse is lost, why, in which phase, and in which collective the
# ranks are or were.
lost() {
    local before=$EPOCHREALTIME
    "${@:5}"
    ended "$1" 1
    awk -v limit="$4" -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < limit) }' || fail "$1: it took more than $4 s to notice"
    local rank='(left|waits in|gave up in) [a-z_]+ of [0-9]+ bytes'
    grep -Eq "actor workhorse 1 on $3 \(rank 1(, pid [0-9]+)?\): method [a-z_]+: $2, in phase \".*\" \(rank 0 $rank, rank 1 $rank\)" \
        "$work/err" ||
        fail "$1: what was lost is not said: $(cat "$work/err")"
}
