# SPDX-License-Identifier: Apache-2.0
#
# Helpers of the tests that end Workhorses: they begin a run of $ranks ranks in the
# background with the options $steps, look around, and expect what is said of a loss.

# start NAME ARGS: a long run in the background, up to its second step.
start() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >"$work/$name.out" 2>"$work/$name.err" &
    run=$!
    for _ in $(seq 200); do
        [ "$(cat "$work/$name/metrics.jsonl" 2>/dev/null | wc -l)" -ge 2 ] && break
        sleep 0.05
    done
    look_around "$name"
}

# held NAME ARGS: a run in the background, up to where SICK_FLAG holds it.
held() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >"$work/$name.out" 2>"$work/$name.err" &
    run=$!
    until [ -e "$SICK_FLAG" ]; do
        kill -0 "$run" 2>/dev/null || fail "$name ended before it was held: $(cat "$work/$name.err")"
        sleep 0.01
    done
    look_around "$name"
}

# look_around NAME: the pids of the program and of its Workhorses, by rank.
look_around() {
    local name=$1
    pid=$(pgrep -P "$run" | head -1)
    horses=$(pgrep -P "${pid:-$run}" | sort -n)
    [ "$(echo "$horses" | wc -w)" = "$ranks" ] || fail "$name has not $ranks Workhorses: $(cat "$work/$name.err")"
}

# hit SIGNAL: sends it to the last Workhorse.
hit() {
    struck=$(echo "$horses" | tail -1)
    kill "-$1" "$struck"
}

# gone: no process that `start` saw is left, nor their shared memory.
gone() {
    local p
    for _ in $(seq 40); do
        for p in $horses; do
            [ -e "/proc/$p" ] && break
        done
        [ -e "/proc/$p" ] || return 0
        sleep 0.1
    done
    fail "Workhorses are left of $horses"
}

# lost NAME PHASE: the run ends within 5 s of `before` and reports that the Workhorse
# which was struck is lost, its phase, and where the ranks are.
lost() {
    local code=0
    wait "$run" || code=$?
    [ "$code" = 1 ] || fail "$1 ended with $code"
    awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 5) }' ||
        fail "$1: it took more than 5 s to notice"
    grep -Eq "workhorse ([0-3]) \(rank \\1, pid $struck\): (no )?method .*in phase \"$2\".*rank 0 .*rank 1 " \
        "$work/$1.err" || fail "what was lost is not said: $(cat "$work/$1.err")"
    gone
}

# quiet: waits until no Workhorse computes, since one is held and the others wait for it.
quiet() {
    local before=-1 now=0
    while [ "$now" != "$before" ]; do
        sleep 0.2
        before=$now
        # shellcheck disable=SC2086
        now=$(for p in $horses; do cut -d' ' -f14 "/proc/$p/stat"; done | awk '{ sum += $1 } END { print sum }')
    done
}
