#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The commands where something is missing or breaks: lines as other systems end them,
# models without a tokenizer, a program without plugins, engines and backends that
# fail in the middle.
set -euo pipefail
unset XRAY_PLUGIN_PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
shows() { # CODE WANT COMMAND...: both streams
    local code=0 want=$1 text=$2
    "${@:3}" >got 2>&1 || code=$?
    diff <(printf '%s\n' "$text") got || fail "${*:3}"
    [ "$code" = "$want" ] || fail "${*:3}: exit code $code"
}
model=$XRAY_TEST_DATA/models/stories260K/hf
mkdir bare folder
cat >bare/config.json <<'JSON'
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16,"num_hidden_layers":1,
"num_attention_heads":2,"num_key_value_heads":2,"intermediate_size":16,"max_position_embeddings":64,
"rms_norm_eps":1e-5,"tie_word_embeddings":false,"hidden_act":"silu","vocab_size":12,"eos_token_id":7}
JSON
bare=(--model bare --set model.init=random)

# ---- lines -------------------------------------------------------------------
printf '{"text":"a"}\n{"text":"b"}\n{"text":"c"}\n' | "$XRAY_BIN" tokenize --model "$model" >want
printf '\xef\xbb\xbf{"text":"a"}\r\n{"text":"b"}\r\n{"text":"c"}' >crlf.jsonl
"$XRAY_BIN" tokenize --model "$model" crlf.jsonl >got || fail "lines with a carriage return"
diff want got || fail "lines with a carriage return"
"$XRAY_BIN" tokenize --model "$model" - <crlf.jsonl | diff want - || fail "the input named -"
asked() { printf '%s\n' "$1" | "$XRAY_BIN" "${@:2}"; }
shows 1 '{"error":"stdin:1: there is no key \"temperatrue\"; did you mean \"temperature\"?"}' asked '{"ids":[1],"temperatrue":1}' generate "${bare[@]}"
for command in "tokenize --model $model" "score ${bare[*]}" "generate ${bare[*]}" "grade --reward rule --set reward.rule.grader=exact"; do
    # shellcheck disable=SC2086
    shows 1 "xray: folder: Is a directory" "$XRAY_BIN" $command folder
    # shellcheck disable=SC2086
    shows 1 "xray: stdin: Is a directory" "$XRAY_BIN" $command <folder
done

# A line may need more room than all lines of the round before it.
long=$(seq 400 | sed 's/.*/3/' | paste -sd ,)
asks() { for _ in $(seq "$1"); do echo '{"ids":[1,2]}'; done && echo "{\"ids\":[$long]}"; }
for command in "score" "generate --temperature 0 --max-tokens 2"; do
    # shellcheck disable=SC2086
    asks 0 | "$XRAY_BIN" $command --model "$model" >want
    # shellcheck disable=SC2086
    asks 256 | "$XRAY_BIN" $command --model "$model" >got || fail "$command: $(tail -n 1 got)"
    tail -n 1 got | cmp - want || fail "$command: a long line after short ones differs"
done

# A conversation that cannot be written is an error; lines that give texts alone are
# refused on the standard error, the first of them too.
echo '{"messages":[]}' >empty.jsonl
cp -r bare digits
echo '{"model":{"type":"BPE","vocab":{"0":0,"1":1},"merges":[]}}' >digits/tokenizer.json
echo '{"chat_template":"{{ messages[0].content }}"}' >digits/tokenizer_config.json
shows 1 '{"error":"empty.jsonl:1: \"messages\" is an empty list"}' "$XRAY_BIN" tokenize --model digits empty.jsonl
shows 1 'xray: empty.jsonl:1: "messages" is an empty list' "$XRAY_BIN" generate --model digits --set model.init=random --stream empty.jsonl
shows 1 'xray: stdin: Is a directory' "$XRAY_BIN" chat --model digits --set model.init=random <folder

# ---- a model without a tokenizer ---------------------------------------------
none='bare/tokenizer.json: cannot open: No such file or directory'
ids() { sed -E 's|:\[[0-9.,null-]*\]|:[]|g'; }
lines() { printf '%s\n' '{"ids":[1,2]}' "$1" | "$XRAY_BIN" "${@:2}" | ids; }
shows 1 '{"ids":[],"logprobs":[],"entropies":[]}
{"error":"stdin:2: no tokenizer: '"$none"'"}' lines '{"text":"1"}' score "${bare[@]}"
shows 1 '{"outputs":[{"ids":[],"text":null,"logprobs":[],"finish_reason":"length"}]}
{"error":"stdin:2: no tokenizer: '"$none"'"}' lines '{"prompt":"1"}' generate "${bare[@]}" --max-tokens 2 --ignore-eos
shows 1 '{"outputs":[{"ids":[],"text":null,"logprobs":[],"finish_reason":"length"}]}
{"error":"stdin:2 needs a tokenizer: '"$none"'"}' lines '{"ids":[1],"stop":"1"}' generate "${bare[@]}" --max-tokens 2 --ignore-eos
for option in --stop=1 --stream; do
    shows 2 "xray: ${option%=1} needs a tokenizer: $none" "$XRAY_BIN" generate "${bare[@]}" $option
done

# ---- a program without plugins -----------------------------------------------
mkdir alone
cp "$XRAY_BIN" alone/xray
shows 0 "no plugin was found" alone/xray plugin list
shows 0 "no plugin has an algorithm" alone/xray algo list
shows 0 $'[\n]' alone/xray plugin list --json
shows 0 $'[\n]' alone/xray algo list --json

# ---- what fails in the middle ------------------------------------------------
sick=(--plugin-path "$XRAY_BUILD/tests/sick" "${bare[@]}")
while IFS='|' read -r fault line says; do
    SICK=$fault SICK_AT=1 shows 1 "xray: $says" asked "$line" generate "${sick[@]}" --infer sick --max-tokens 3
done <<'FAULTS'
infer-breaks|{"ids":[1,2]}|infer.sick: step: the device is lost
infer-lost|{"ids":[1,2]}|infer.sick: poll: the samples are lost
infer-top|{"ids":[1,2],"top_logprobs":2}|the engine returned a sample without the log-probs that were asked for
infer-picked|{"ids":[1,2],"logprob_token_ids":[3]}|the engine returned a sample without the log-probs that were asked for
infer-prompt|{"ids":[1,2],"prompt_logprobs":true}|the engine returned a sample without the log-probs that were asked for
FAULTS
SICK=train-breaks SICK_AT=1 shows 1 "xray: train.sick: forward: the device is lost" asked '{"ids":[1,2]}' score "${sick[@]}" --train sick
# An answer that cannot be graded is one error, and the next one is graded.
sick=(grade --plugin-path "$XRAY_BUILD/tests/sick" --reward a --set reward.a.plugin=sick --set reward.a.grader=exact)
SICK=reward-nan SICK_AT=1 shows 1 '{"error":"stdin:1: reward.a gave the score nan for sample 0, expected a finite number"}
{"score":1,"acc":1,"answered":1}' asked $'{"response":"1","ground_truth":1}\n{"response":"2","ground_truth":2}' "${sick[@]}"

# ---- jobs of an engine -------------------------------------------------------
cat >job.ini <<INI
[run]
runtime = fake
[runtime]
interface = lo
[model]
path = $model
init = random
[data]
train_files = rows.jsonl
max_prompt_length = 64
max_response_length = 64
[actor]
ppo_max_token_len_per_gpu = 2048
INI
echo '{"prompt":"a","answer":"b"}' >rows.jsonl
fakes=$XRAY_BUILD/tests/fakes
submit() { "$XRAY_BIN" submit job.ini --plugin-path "$fakes" "$@"; }
shows 7 "job: train job.ini --set run.seed=3 --set rollout.n=2 --plugin-path $fakes" submit --set run.seed=3 --set rollout.n=2
shows 7 "job: train job.ini --plugin-path $fakes --log warn --accept-changes" submit --accept-changes --log warn
shows 7 "job: sft job.ini --set sft.max_token_len=2048 --plugin-path $fakes" submit --job sft --set sft.max_token_len=2048
rm -f got # the lines of an earlier job
env --default-signal=INT "$XRAY_BIN" submit job.ini --plugin-path "$fakes" --set runtime.fake.fault=long >got 2>&1 &
pid=$!
until grep -qs '^job: ' got; do
    kill -0 $pid 2>/dev/null || fail "the job ended early: $(cat got)"
    sleep 0.01
done
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 9 ] || fail "a job that was asked to stop: exit $code: $(cat got)"
echo "cli.edges: ok"
