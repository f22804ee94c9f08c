#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ctrl-C ends an answer of xray chat and not the program, and the next turn goes on
# from what had been answered; a second one before that ends the program. On a
# terminal each turn begins with a prompt, and the keys Ctrl-C and Ctrl-D do the same.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $1"
    exit 1
}
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$work/template"
options=(--model "$XRAY_TEST_DATA/models/stories260K/hf" --temperature 0 --max-tokens 8
    --set "data.chat_template=$work/template")

# An engine that waits before its fifth step, once, so that the interrupt comes
# while an answer is on its way.
export SICK=infer-wait SICK_AT=5 SICK_FLAG=$work/waits
sick=("$XRAY_BIN" chat "${options[@]}" --plugin-path "$XRAY_BUILD/tests/sick" --infer sick)

await() { # TEXT COMMAND...: until the command succeeds
    local text=$1
    shift
    for _ in $(seq 300); do
        "$@" && return
        sleep 0.1
    done
    fail "$text: $(cat "$work/err")"
}

talk() {
    coproc chat { exec "${sick[@]}" 2>"$work/err"; }
    # shellcheck disable=SC2154
    in=${chat[0]} out=${chat[1]} pid=$chat_PID
    echo "Once upon a time" >&"$out"
    await "the engine does not wait" [ -e "$work/waits" ]
}

talk
kill -INT "$pid"
touch "$work/waits.go"
IFS= read -r -t 60 -u "$in" answer || fail "no answer: $(cat "$work/err")"
whole=$(echo "Once upon a time" | "$XRAY_BIN" chat "${options[@]}" 2>/dev/null)
[ -n "$answer" ] && [ "$answer" != "$whole" ] || fail "'$answer' did not end early"
[ "${whole:0:${#answer}}" = "$answer" ] || fail "'$answer' is not the beginning of '$whole'"
kill -0 "$pid" || fail "the program ended"
# That it was cut is said of an answer that reached --max-tokens, and of no other.
grep -q "was cut" "$work/err" && fail "the answer was not too long: $(cat "$work/err")"
echo " Then" >&"$out"
IFS= read -r -t 60 -u "$in" second || fail "no second answer: $(cat "$work/err")"
text=$(echo "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time$answer Then\"}]}" |
    "$XRAY_BIN" generate "${options[@]}" --stream)
[ "$second" = "$text" ] || fail "'$second' does not go on from '$answer': expected '$text'"
exec {out}>&-
wait "$pid" || fail "exit code $?"

rm -f "$work/waits" "$work/waits.go"
talk
kill -INT "$pid"
sleep 0.2
kill -INT "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "two interrupts gave exit code $code"

# The program script types into a terminal of its own, which shows Ctrl-C as ^C. The
# shell that it starts would get the interrupt too and end by it, so the program takes
# the shell's place. A container may have no terminals.
if ! script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    echo "skipped: the keys on a terminal: this machine makes none"
    exit 77
fi
rm -f "$work/waits" "$work/waits.go"
type_keys() {
    printf 'Once upon a time\n'
    await "the engine does not wait" [ -e "$work/waits" ]
    printf '\003'
    await "the terminal shows no ^C" grep -qF '^C' "$work/err"
    touch "$work/waits.go"
    printf '\004'
}
touch "$work/err"
type_keys | script -qefc "exec $(printf '%q ' "${sick[@]}")" "$work/err" >/dev/null || fail "on a terminal: exit code $?: $(cat "$work/err")"
shown=$(tr -d '\r' <"$work/err" | sed 's/\^C//')
grep -qF '> ' <<<"$shown" || fail "no prompt on a terminal: $shown"
grep -qF -- "$answer" <<<"$shown" || fail "'$answer' is not on the terminal: $shown"
! grep -qF -- "$whole" <<<"$shown" || fail "Ctrl-C did not end the answer: $shown"
echo "interrupted answer: ok"
