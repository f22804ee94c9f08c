#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a limit of the shell makes a run fail, the message names that limit, in one
# process and in two Workhorses.
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i 's/^total_training_steps = .*/total_training_steps = 1/' "$work/run.ini"

# limited LETTER VALUE [--set ...]: 1 if the run failed, for no other reason.
failures=0
limited() {
    local letter=$1 value=$2 code=0
    shift 2
    (
        ulimit -S "-$letter" "$value"
        train "$work/out-$letter-$value-$#" --set run.threads=1 "$@"
    ) >/dev/null 2>"$work/err" || code=$?
    [ "$code" != 0 ] || return 0
    failures=$((failures + 1))
    [ "$code" = 1 ] || [ "$code" = 2 ] || fail "ulimit -$letter $value $*: exit $code: $(cat "$work/err")"
    grep -q "(ulimit -$letter is $value)" "$work/err" || fail "ulimit -$letter $value $*: $(cat "$work/err")"
    tail -n 1 "$work/err" | grep -q "(ulimit -$letter is $value)" || [ "$letter" = v ] ||
        fail "ulimit -$letter $value $*: the last line hides it: $(cat "$work/err")"
    ! grep -q 'failed with status' "$work/err" || fail "ulimit -$letter $value $*: $(cat "$work/err")"
}
for size in 1 40 200; do
    limited f $size
    limited f $size --set run.ranks=2
done
[ "$failures" = 6 ] || fail "a run wrote more than it may"
for files in 5 6 7; do
    limited n $files
done
for files in 5 6 7 8 9 10 11 12 13; do
    limited n $files --set run.ranks=2
done
[ "$failures" -ge 14 ] || fail "runs need fewer files than the test takes"
if ! sanitized; then
    failures=0
    for memory in 100000 500000 1000000 2000000; do
        limited v $memory --set run.ranks=2
    done
    [ "$failures" -ge 3 ] || fail "runs need less address space than the test takes"
fi
echo "limits: ok"
