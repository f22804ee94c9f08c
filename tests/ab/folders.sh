#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folders of xray ab and resuming in them: names of variants, seeds, the settings
# and the command of each run, and faults that are refused before anything starts.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    exit 1
}

mkdir model sub
cat >model/config.json <<'JSON'
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16,"num_hidden_layers":1,
"num_attention_heads":2,"num_key_value_heads":2,"intermediate_size":16,"max_position_embeddings":64,
"rms_norm_eps":1e-5,"tie_word_embeddings":false,"hidden_act":"silu","vocab_size":12,"eos_token_id":11}
JSON
cat >model/tokenizer.json <<'JSON'
{"model":{"type":"BPE","vocab":{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"-":10},"merges":[]},
"added_tokens":[{"id":11,"content":"</s>","special":true}]}
JSON
echo '{"eos_token":"</s>"}' >model/tokenizer_config.json
printf '{"prompt":"12","answer":"3"}\n{"prompt":"45","answer":"9"}\n' >rows.jsonl
ini() { # FILE SEED LR
    cat >"$1" <<INI
[run]
seed = $2
threads = 1
[model]
path = $work/model
init = random
[data]
train_files = $work/rows.jsonl
max_prompt_length = 8
max_response_length = 8
train_batch_size = 2
[sft]
train_batch_size = 2
total_steps = 1
max_token_len = 64
[sft.optim]
lr = $3
[trainer]
resume_mode = resume_path
resume_from_path = $work/of-another-run
INI
}
ini base.ini 9 0
ini sub/base.ini 77 1e-3
ini "sub/.a b.ini" 5 1e-2
ab() { "$XRAY_BIN" ab --job sft --metric train/loss --lower "$@"; }

# ---- a comparison of three, two of which have one name -------------------------
ab base.ini sub/base.ini "sub/.a b.ini" --seeds 2 --jobs 1 --out out/one --set trainer.project_name=p \
    --set train.zero3.weight_decay=0.5 --plugin-path "$work/sub" --log info >text 2>err || fail "$(cat err)"
cat >want <<'ERR'
xray: base, seed 9: done (1 of 6)
xray: base-2, seed 9: done (2 of 6)
xray: _a_b, seed 9: done (3 of 6)
xray: base, seed 10: done (4 of 6)
xray: base-2, seed 10: done (5 of 6)
xray: _a_b, seed 10: done (6 of 6)
ERR
diff want err || fail "one after the other, seed by seed"
grep -qx 'train/loss, the last of each run; lower is better' text || fail "$(head -n 1 text)"
[ "$(tail -n 1 text)" = "report out/one/report.html" ] || fail "$(tail -n 1 text)"
[ -s out/one/report.html ] || fail "no report"
[ "$(cat out/one/job)" = sft ] || fail "job: $(cat out/one/job)"
(cd out/one && find . -path '*/global_step*' -prune -o -type f -print | LC_ALL=C sort | grep -v '/latest\|\.lock\|/actor') >files
for variant in _a_b base base-2; do
    for seed in 9 10; do
        for name in finished metrics.jsonl output.txt; do
            grep -qx "./$variant/seed-$seed/$name" files || fail "no $variant/seed-$seed/$name: $(cat files)"
        done
        resolved=out/one/$variant/seed-$seed/global_step_1/run.ini
        grep -qx "seed = $seed" "$resolved" || fail "$resolved: $(grep seed "$resolved")"
        grep -qx "default_local_dir = $work/out/one/$variant/seed-$seed" "$resolved" || fail "$resolved: the folder"
        grep -qx "rollout_data_dir = $work/out/one/$variant/seed-$seed/rollout" "$resolved" || fail "$resolved: samples"
        grep -qx "weight_decay = 0.5" "$resolved" || fail "$resolved: --set"
        grep -qx "threads = 1" "$resolved" || fail "$resolved: threads"
        grep -qx "log = info" "$resolved" || fail "$resolved: --log"
        grep -qx "logger = jsonl" "$resolved" || fail "$resolved: logger"
    done
    [ -s "out/one/$variant/run.ini" ] || fail "no run.ini of $variant"
    grep -qx "./$variant/run.ini" files
done
grep -qx 'lr = 0.01' out/one/_a_b/run.ini || grep -qx 'lr = 1e-2' out/one/_a_b/run.ini || fail "_a_b is another file"
[ ! -e out/one/base/seed-77 ] || fail "seeds of a variant's own"

# ---- resuming ------------------------------------------------------------------
rm out/one/base-2/seed-10/finished
cp out/one/base/run.ini kept
ab base.ini sub/base.ini "sub/.a b.ini" --seed-list 10,9,11 --jobs 3 --out out/one --set train.zero3.weight_decay=0.5 >text 2>err ||
    fail "$(cat err)"
grep -qx 'xray: 5 of 9 runs are already done' err || fail "$(cat err)"
[ "$(grep -c ': done (' err)" = 4 ] || fail "$(cat err)"
grep -q 'base-2, seed 10: done' err || fail "$(cat err)"
grep -qx 'xray: .*: done (9 of 9)' err || fail "$(cat err)"
cmp -s kept out/one/base/run.ini || fail "run.ini was written anew"
grep -q '^10  ' text && grep -q '^11  ' text || fail "the seeds of the list: $(cat text)"

# ---- refusals: all at once, and nothing is started --------------------------------
refused() { # SENTENCE ARGS...
    local code=0 sentence=$1
    shift
    "$XRAY_BIN" ab --job sft --out two "$@" >out.txt 2>err || code=$?
    [ "$code" = 2 ] || fail "exit $code: $* : $(cat err)"
    [ ! -s out.txt ] || fail "on stdout: $(cat out.txt)"
    grep -qxF "xray: $sentence" err || fail "$*: $(cat err)"
    [ ! -e two ] || fail "$*: a folder was made"
}
takes="--seed-list takes integers of at least 0, separated by commas, not"
for list in x 1,,2 1, -1 1.5 "1 2" 12345678901234567890123456789012; do
    bad=$list
    case $list in 1,,2 | 1,) bad= ;; esac
    refused "$takes '$bad'" base.ini sub/base.ini --seed-list="$list"
done
refused "--seed-list: 4 is listed twice" base.ini sub/base.ini --seed-list 4,5,4
refused "--set rollout: expected section.key=value" base.ini sub/base.ini --set rollout
[ "$(wc -l <err)" = 1 ] || fail "the fault of an option more than once: $(cat err)"
refused "--out: the path is too long" base.ini sub/base.ini --out "$(printf 'x%.0s' {1..4000})"
code=0
ab base.ini sub/base.ini --out out/one --seeds 1 >out.txt 2>err || code=$?
[ "$code" = 2 ] || fail "other settings: exit $code"
grep -qF '[train.zero3] weight_decay is ' err && grep -qF ', but the runs in out/one/base-2 were started with 0.5; choose another --out for the changed variant' err ||
    fail "$(cat err)"
code=0
"$XRAY_BIN" ab base.ini sub/base.ini --out out/one --seeds 1 --set train.zero3.weight_decay=0.5 >out.txt 2>err || code=$?
[ "$code" = 2 ] && grep -qx 'xray: --job train: the runs in out/one were started with --job sft; choose another --out' err || fail "$(cat err)"

# A folder of runs without a job file holds runs of xray train.
mkdir -p four/base
code=0
ab base.ini sub/base.ini --out four >out.txt 2>err || code=$?
[ "$code" = 2 ] && grep -qx 'xray: --job sft: the runs in four were started with --job train; choose another --out' err || fail "$(cat err)"

# Runs with threads = 0 share the cores.
sed -i 's/^threads = .*/threads = 0/' base.ini
cores=$(getconf _NPROCESSORS_ONLN)
ab base.ini base.ini --out five --seed-list 0 --jobs 2 >text 2>err || fail "$(cat err)"
share=$((cores / 2 > 0 ? cores / 2 : 1))
grep -qx "threads = $share" five/base-2/seed-0/global_step_1/run.ini || fail "threads: $(grep threads five/base-2/seed-0/global_step_1/run.ini)"
# By itself xray ab lets one that may use all cores run alone.
ab base.ini base.ini --out alone --seed-list 0 >text 2>err || fail "$(cat err)"
grep -qx "threads = 0" alone/base-2/seed-0/global_step_1/run.ini || fail "threads: $(grep threads alone/base-2/seed-0/global_step_1/run.ini)"
sed -i 's/^threads = .*/threads = 1/' base.ini

# ---- runs at a time ------------------------------------------------------------------
find_runs() { # SEED: the processes of $ab
    runs=()
    for run in $(cat "/proc/$ab/task"/*/children); do
        ! grep -qaF "run.seed=$1" "/proc/$run/cmdline" 2>/dev/null || runs+=("$run")
    done
}
# So many run once the first has made a step, if the second variant has so many threads.
at_a_time() { # NUMBER THREADS SEED OPTIONS...
    sed -i "s/^threads = .*/threads = $2/" sub/base.ini
    "$XRAY_BIN" ab --job sft --out "many-$3" --seed-list "$3" base.ini sub/base.ini --set sft.total_steps=100000000 "${@:4}" >text 2>err &
    ab=$!
    runs=()
    trap 'kill -KILL "$ab" "${runs[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
    until [ -s "many-$3/base/seed-$3/metrics.jsonl" ]; do
        kill -0 "$ab" 2>/dev/null || fail "it ended: $(cat err)"
        sleep 0.01
    done
    for _ in $(seq 1000); do # the last may still be about to begin
        find_runs "$3"
        [ "${#runs[@]}" -lt "$1" ] || break
        sleep 0.01
    done
    { kill -KILL "$ab" "${runs[@]}" && wait "$ab" || true; } 2>/dev/null
    trap 'rm -rf "$work"' EXIT
    [ "${#runs[@]}" = "$1" ] || fail "${#runs[@]} runs at a time, not $1: ${*:2}"
}
at_a_time $((cores > 1 ? 2 : 1)) 1 1
at_a_time 1 "$cores" 2
SICK=well at_a_time 1 1 3 --set run.device=sick --plugin-path "$XRAY_BUILD/tests/sick"
sed -i 's/^threads = .*/threads = 1/' sub/base.ini

# ---- runs that fail ----------------------------------------------------------------
mkdir -p three/base/seed-10
echo x >three/base/seed-10/latest_checkpointed_iteration.txt
printf sft >three/job
code=0
ab base.ini sub/base.ini --out three --seeds 2 --jobs 1 --log warn >text 2>err || code=$?
[ "$code" = 1 ] || fail "a failed run: exit $code: $(cat err)"
grep -q '^xray: base, seed 10: failed: .*three/base/seed-10/latest_checkpointed_iteration.txt' err || fail "$(cat err)"
grep -qx 'xray: 1 of 4 runs failed; the same command runs them again' err || fail "$(cat err)"
grep -q '^missing: base, seed 10 failed: .*latest_checkpointed_iteration.txt' text || fail "$(cat text)"
[ ! -e three/base/seed-10/finished ] || fail "a failed run is marked as finished"
[ -e three/base-2/seed-10/finished ] || fail "the other run was not made"

# ---- runs that end while xray ab is being stopped -----------------------------------
# The runs are stopped, so that only a kill ends them: none is left to be resumed, but
# the comparison was stopped all the same.
"$XRAY_BIN" ab --job sft --out six --seed-list 3 --jobs 2 --plugin-path "$work/sub" base.ini sub/base.ini \
    --set sft.total_steps=100000000 >text 2>err &
ab=$!
runs=()
trap 'kill -KILL "$ab" "${runs[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
while [ "${#runs[@]}" -lt 2 ]; do
    kill -0 "$ab" 2>/dev/null || fail "it ended: $(cat err)"
    find_runs 3
done
kill -STOP "${runs[@]}"
for run in "${runs[@]}"; do
    tr '\0' '\n' <"/proc/$run/cmdline" >words
    grep -qx -A 1 -e --plugin-path words && grep -qx "$work/sub" words || fail "--plugin-path of a run: $(cat words)"
done
kill -INT "$ab" # which a shell ignores for what runs in the background
kill -TERM "$ab"
until grep -q 'stopping the runs after their current steps' err; do
    kill -0 "$ab" 2>/dev/null || fail "it ended: $(cat err)"
done
kill -KILL "${runs[@]}"
code=0
wait "$ab" || code=$?
trap 'rm -rf "$work"' EXIT
[ "$code" = 143 ] || fail "stopped by SIGTERM: exit $code: $(cat err)"
grep -q '^xray: stopped by SIGTERM with 0 of 2 runs done; resume with: ' err || fail "$(cat err)"
[ ! -s text ] && [ ! -e six/report.html ] || fail "a report of a stopped comparison"

# ---- seeds of files that have none, warnings, and a terminal ------------------------
sed '/^seed/d' base.ini >plain.ini
sed '/^seed/d' sub/base.ini >sub/plain.ini
all=$("$XRAY_BIN" plan plain.ini --job sft --json | sed -n 's/^ "bytes".*"all":\([0-9]*\)}.*/\1/p')
two=("$XRAY_BIN" ab --job sft --metric train/loss --seeds 2 --jobs 1 plain.ini sub/plain.ini)
"${two[@]}" --out seven --set "device.cpu.memory=$((all * 20 / 19))" >text 2>err || fail "$(cat err)"
[ "$(grep -cE '^xray: plain(-2)?: warning: ' err)" = 2 ] || fail "warnings: $(cat err)"
for variant in plain plain-2; do
    [ "$(cd seven/$variant && echo seed-*)" = "seed-42 seed-43" ] || fail "seeds by themselves: $(ls seven/$variant)"
done
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    script -qefc "$(printf '%q ' "${two[@]}" --out eight)" shown </dev/null >/dev/null || fail "on a terminal: $(cat shown)"
    # Each line takes the place of the progress, of which the first is shown at once.
    tr '\r' '\n' <shown | sed 's/\x1b\[K//' >lines
    grep -q '^[0-3] of 4 runs done  plain[-2]*, seed 4[23]: step [01]$' lines || fail "no progress: $(cat lines)"
    awk '/^xray: plain.*: done /{n++} /^[0-9]+ of 4 runs done/ && $1 != n + 0 {exit 1}' lines || fail "the progress counts wrongly: $(cat lines)"
    [ "$(grep -c '^xray: plain.*: done ([1-4] of 4)$' lines)" = 4 ] || fail "not every end is shown: $(cat lines)"
    grep -q $'\r\e\[Kxray: plain, seed 42: done (1 of 4)' shown || fail "the progress stays: $(cat shown)"
fi
echo "folders: ok"
