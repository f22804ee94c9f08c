#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One SIGINT finishes the step, writes a checkpoint and prints the command that
# resumes; a second one ends the run at once. Both also in the middle of validation
# and of sampling. Prints how long each canceled call took to end the program.
. "$(dirname "$0")/lib.sh"
last=4
steps $last
sed -i 's/^algo = sick/algo = grpo\ninfer = sick/' "$work/run.ini"
SICK='' train "$work/whole" >/dev/null 2>&1
export SICK=infer-wait SICK_FLAG=$work/flag

# until_held TEXT FILE: while $pid runs, for 30 s at most.
until_held() {
    for _ in $(seq 3000); do
        if grep -qs "$1" "$2" || ! kill -0 "$pid" 2>/dev/null; then break; fi
        sleep 0.01
    done
}

read_clock() { date +%s%3N; }

# interrupt FOLDER CALL SIGNALS [OPTIONS...]: sends them while the engine waits
# in its step number CALL. After one signal the engine goes on; a second is sent
# only once the program has said that it caught the first, because two that are
# pending together arrive as one. A shell ignores SIGINT for what runs in the
# background. The milliseconds from the last signal to the end are in $took.
interrupt() {
    local dir=$1 at=$2 pid sent
    read -ra signals <<<"$3"
    shift 3
    rm -rf "$dir" "$work/flag" "$work/flag.go"
    SICK_AT=$at env --default-signal=INT "$XRAY_BIN" train "$work/run.ini" \
        --set "trainer.default_local_dir=$dir" "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    until_held here "$work/flag"
    for signal in "${signals[@]}"; do
        sent=$(read_clock)
        kill -s "$signal" "$pid"
        until_held "a second signal stops" "$work/err"
    done
    [ ${#signals[@]} -gt 1 ] || touch "$work/flag.go"
    code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    took=$(($(read_clock) - sent))
}

command_of() { sed -n "s/^xray: stopped .*resume .*with: //p" "$work/err"; }

once() { # NAME CALL STEP [OPTIONS...]
    local dir="$work/it's $1" step=$3
    interrupt "$dir" "$2" INT "${@:4}"
    [ "$code" = 130 ] || fail "$1: exit $code: $(cat "$work/err")"
    grep -qx "xray: stopping after this step, with a checkpoint; a second signal stops at once" "$work/err" || fail "$1: $(cat "$work/err")"
    grep -q "^xray: stopped by SIGINT after step $step; resume with: " "$work/err" || fail "$1: $(cat "$work/err")"
    [ "$(cat "$dir/latest_checkpointed_iteration.txt")" = "$step" ] || fail "$1: not the checkpoint of step $step"
    unset SICK_AT
    bash -c "SICK= $(command_of)" >/dev/null 2>"$work/err2" || fail "$1: $(command_of): $(cat "$work/err2")"
    same_run "$work/whole" "$dir" $last
    no_leftovers "$dir"
}
once validation 1 0
once rollout 12 1
once disabled 12 1 --set trainer.resume_mode=disable

twice() { # NAME CALL
    local dir=$work/$1-twice
    interrupt "$dir" "$2" "INT INT"
    [ "$code" = 130 ] || fail "$1: exit $code: $(cat "$work/err")"
    grep -q "^xray: stopped at once; no checkpoint was written; resume from the last one with: .*train " "$work/err" ||
        fail "$1: $(cat "$work/err")"
    [ -z "$(ls "$dir" | grep global_step)" ] || fail "$1: a checkpoint was written"
    [ ! -s "$work/out" ] || fail "$1: $(cat "$work/out")"
    bash -c "SICK= $(command_of)" >/dev/null 2>"$work/err2" || fail "$1: $(command_of): $(cat "$work/err2")"
    same_run "$work/whole" "$dir" $last
}
twice validation 1
twice rollout 12
interrupt "$work/term" 12 "TERM TERM"
[ "$code" = 143 ] || fail "SIGTERM twice: exit $code: $(cat "$work/err")"

# Here the program starts with SIGINT ignored, and that stays so.
rm -f "$work/flag" "$work/flag.go"
SICK_AT=12 "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/ignored" >"$work/out" 2>"$work/err" &
pid=$!
until_held here "$work/flag"
kill -INT "$pid"
kill -TERM "$pid"
until_held "a second signal stops" "$work/err"
touch "$work/flag.go"
code=0
wait "$pid" || code=$?
[ "$code" = 143 ] && grep -q "^xray: stopped by SIGTERM after step 1; " "$work/err" || fail "SIGINT ignored: exit $code: $(cat "$work/err")"

# canceled NAME CALL [OPTIONS...]: a plugin of $ranks ranks is in a call that takes a minute
# but asks whether it shall end. It ends, and so does the run, in order: nothing
# half written is left, as a process that gives up would leave it.
canceled() {
    local dir=$work/$1-canceled
    export SICK=$1
    rm -f "$work/flag.canceled"
    # The sentence of the first signal is that of `interrupt`.
    interrupt "$dir" "$2" "INT INT" --set run.ranks=$ranks "${@:3}"
    [ "$code" = 130 ] || fail "$1: exit $code: $(cat "$work/err")"
    [ -e "$work/flag.canceled" ] || fail "$1: the call was not canceled: $(cat "$work/err")"
    [ "$(grep -c "" "$work/err")" = "$(grep -cE "^xray: (stopping after|stopped at once; no checkpoint)|^step |^xray: actor|^resumed|rows left out" "$work/err")" ] ||
        fail "$1: more was said: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$1: $(cat "$work/out")"
    [ ! -d "$dir" ] || no_leftovers "$dir"
    times+=("$took")
    echo "$1, ranks $ranks: ended after $took ms"
}
times=()
sed -i 's/^algo = grpo/&\ntrain = sick/; s/^plugin = rule/plugin = sick/' "$work/run.ini"
for ranks in 1 2; do
    SICK='' train "$work/end" --set run.ranks=$ranks >/dev/null 2>&1
    canceled infer-hold 3
    canceled train-create-hold 1
    canceled train-hold 1
    canceled train-save-hold 1 --set trainer.save_freq=1
    canceled train-load-hold 1 --set trainer.resume_mode=resume_path --set "trainer.resume_from_path=$work/end/global_step_$last"
    canceled reward-hold 3
    rm -r "$work/end"
done
# The median, since a loaded machine may delay any one of them; an idle one takes
# less than 200 ms for each (docs/performance.md).
median=$(printf '%s\n' "${times[@]}" | sort -n | sed -n "$((${#times[@]} / 2 + 1))p")
[ "$median" -lt 1500 ] || fail "a canceled call ends the program after $median ms"
echo "faults.signals: ok"
