#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves which reward plugin an instance uses: the one that its section names, or
# the one with its own name, or rule if the section sets a grader. Otherwise there
# is an error that lists the available ones.
. "$(dirname "$0")/../rl/lib.sh"
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick
there="available: sick, ffi, http, rule"
line='{"response":"a","ground_truth":"a"}'
grade() { "$XRAY_BIN" grade --reward "$@" <<<"$line" >"$work/out" 2>"$work/err"; }

# refuses SENTENCE INSTANCES [--set ...]
refuses() {
    local code=0
    grade "${@:2}" || code=$?
    [ "$code" = 2 ] || fail "${*:2}: exit $code: $(cat "$work/out" "$work/err")"
    [ "$(cat "$work/err")" = "xray: $1" ] || fail "${*:2}: $(cat "$work/err"), expected: xray: $1"
    [ ! -s "$work/out" ] || fail "${*:2}: scored: $(cat "$work/out")"
}
none() { echo "--set: [run] reward: there is no section [reward.$1], and no plugin provides xray.reward/0:$1; $there"; }
refuses "$(none jsn)" jsn
refuses "$(none rul); did you mean rule?" rul
refuses "$(none lenght); did you mean [reward.length]?" lenght --set reward.length.grader=length
refuses "configuration: [reward.length] plugin is not set, and no plugin provides xray.reward/0:length; $there; a section that sets grader belongs to rule" \
    length --set reward.length.weight=2
refuses "--set: [reward.x] plugin: no plugin provides xray.reward/0:sik; $there; did you mean sick?" x --set reward.x.plugin=sik
# The built-in reward has a name as well, but grade starts no backend for it.
refuses "configuration: [reward.model] plugin: model: only xray train has one" model

# gives LINE INSTANCES [--set ...]
gives() {
    grade "${@:2}" || :
    [ "$(cat "$work/out")" = "$1" ] || fail "${*:2}: $(cat "$work/out" "$work/err"), expected: $1"
}
right='{"score":1,"acc":1,"answered":1}'
gives "$right" rule
gives "$right" words --set reward.words.grader=exact
nan() { echo "{\"error\":\"stdin:1: reward.$1 gave the score nan for sample 0, expected a finite number\"}"; }
export SICK=reward-nan # only the sick one does
gives "$right" rule
gives "$(nan sick)" sick
gives "$(nan sick)" sick --set reward.sick.grader=exact
gives "$(nan x)" x --set reward.x.plugin=sick
gives "$right" sick --set reward.sick.plugin=rule
XRAY_REWARD_X__PLUGIN=sick gives "$(nan x)" x

# The chosen plugin is printed and reads back.
printf '[run]\nreward = sick, words\n[reward.words]\ngrader = exact\n' >"$work/run.ini"
"$XRAY_BIN" config print "$work/run.ini" 2>/dev/null >"$work/printed" || :
for pair in sick:sick words:rule; do
    sed -n "/^\[reward.${pair%:*}\]/,/^$/p" "$work/printed" | grep -qx "plugin = ${pair#*:}" ||
        fail "not printed: $pair: $(cat "$work/printed")"
done

# A section that is not listed is not silently a `rule`; one in addition to [reward.rule] is allowed.
unlisted="xray: $work/run.ini: [run] reward is not set, so nothing would read [reward.words]; expected reward = words, or a list of others"
printf '[reward.words]\ngrader = exact\n' >"$work/run.ini"
! "$XRAY_BIN" check "$work/run.ini" >/dev/null 2>"$work/err" || fail "a reward that nothing lists is no error"
grep -qxF "$unlisted" "$work/err" || fail "a reward that nothing lists: $(cat "$work/err"), expected: $unlisted"
printf '[reward.rule]\ngrader = exact\n' >>"$work/run.ini"
! "$XRAY_BIN" check "$work/run.ini" >/dev/null 2>"$work/err" || fail "an INI without a model is no error"
! grep -qF "[run] reward" "$work/err" || fail "beside [reward.rule]: $(cat "$work/err")"
echo "zoo.names: ok"
