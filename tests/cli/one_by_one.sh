#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Lines get the same answers whether they are sent all at once or one by one, each
# after the answer to the one before: samples depend on the number of a line, not on
# the lines that are read with it.
. "$XRAY_SOURCE/tests/rl/lib.sh"
make_task
train "$work/run" --set trainer.total_training_steps=1 >/dev/null
model=$work/run/global_step_1/actor

lines() { # KEY
    for _ in 1 2 3 4 5 6; do echo "{\"$1\":\"1+2=\"}"; done
}

one_by_one() { # KEY COMMAND [ARGUMENT...]
    local key=$1 line answer in out
    shift
    coproc tool { "$XRAY_BIN" "$@" --model "$model"; }
    # shellcheck disable=SC2154
    in=${tool[0]} out=${tool[1]} pid=$tool_PID
    while IFS= read -r line; do
        echo "$line" >&"$out"
        IFS= read -r -u "$in" answer || fail "no answer to $line"
        echo "$answer"
    done < <(lines "$key")
    exec {out}>&-
    wait "$pid"
}

same() { # KEY COMMAND [ARGUMENT...]
    lines "$1" | "$XRAY_BIN" "${@:2}" --model "$model" >"$work/together"
    one_by_one "$@" >"$work/apart"
    [ "$(wc -l <"$work/together")" = 6 ] || fail "$2: $(wc -l <"$work/together") answers to 6 lines"
    cmp "$work/together" "$work/apart" || fail "$2: lines that come one by one have other answers"
}
same text score
same prompt generate --max-tokens 5 --n 2 --seed 4
# Equal prompts get different samples.
[ "$(sort -u "$work/together" | wc -l)" -gt 1 ] || fail "equal lines have equal samples: $(cat "$work/together")"
echo "one by one: ok"
