#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Complete outputs of the program against tests/cli/goldens: the help page of every
# command, options of a plugin, algorithms and presets, plans. `goldens.sh write`
# replaces the goldens by the current output.
set -euo pipefail
goldens=$XRAY_SOURCE/tests/cli/goldens
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

# same NAME COMMAND...: both streams and the exit code, without the folders.
same() {
    local name=$1 code=0
    shift
    "$@" >"$work/out" 2>"$work/err" || code=$?
    {
        cat out
        [ ! -s err ] || { echo "---- stderr" && cat err; }
        [ "$code" = 0 ] || echo "---- exit code $code"
    } | sed -e "s,$work/,,g" -e "s,$XRAY_BUILD/,BUILD/,g" >"$work/got"
    if [ "$mode" = write ]; then
        cp got "$goldens/$name"
    elif ! diff -u "$goldens/$name" got; then
        echo "FAIL: $name"
        failures=$((failures + 1))
    fi
}
mode=${1:-}

help_pages() {
    "$XRAY_BIN" --help
    for command in train sft eval submit check plan ab compare score generate tokenize grade convert chat "data convert" "data head" "data stats" "data check" "algo list" "plugin list" \
        "plugin inspect" "config print" "config schema" "config docs"; do
        echo "=================================================="
        # shellcheck disable=SC2086
        "$XRAY_BIN" $command --help
    done
}
same help.txt help_pages

# ---- a plugin with options of every kind, and no other -----------------------
cp "$XRAY_BUILD/tests/kinds/kinds.so" .
kinds=(--plugin-path "$work")
for format in text ini json; do
    same "kinds.$format" "$XRAY_BIN" plugin inspect ./kinds.so --format=$format
done
# The rest of the page belongs to plugins, whose own tests cover their options.
page() { "$XRAY_BIN" config docs "${kinds[@]}" | awk '/^## /{on = /kind/} on'; }
same kinds.docs page
sections() {
    "$XRAY_BIN" config schema "${kinds[@]}" >schema
    head -n 3 schema
    awk '/^  "algo.kinds"/{on = 1} on{print} /^  "/ && !/^  "algo.kinds"/{on = 0}' schema
    grep -n '"kindly"' schema | cut -d: -f2-
    tail -n 1 schema
}
same kinds.schema sections
presets() { "$XRAY_BIN" algo list "${kinds[@]}" "$@"; }
of_kinds() { awk '/^kinds: /{on = 1} on && /^$/{on = 0} on'; }
text_presets() { presets | of_kinds; }
json_presets() { presets --json | tr '\n' '~' | grep -o '{"algo":"kinds"[^]]*\]}' | tr '~' '\n'; }
same kinds.presets.txt text_presets
same kinds.presets.json json_presets
listed() { "$XRAY_BIN" plugin list "${kinds[@]}" "$@" | grep -A1 "kinds  \|\"kinds\"" | head -n $((2 - $#)); }
same kinds.list.txt listed
same kinds.list.json listed --json

mkdir first second odd
cp kinds.so first/ && cp kinds.so second/
echo "no plugin" >odd/broken.so
several() { "$XRAY_BIN" plugin list --plugin-path "$work/first:$work/second:$work/odd" "$@" | grep -A1 'kinds\|broken' | grep -v 'algo-'; }
same several.txt several
same several.json several --json
twice() { "$XRAY_BIN" plugin inspect kindly --plugin-path "$work/first:$work/second" | head -n 2; }
same twice.txt twice

# ---- refusals of a command line ------------------------------------------------
# One command per line, run as it is.
refusals() {
    local line
    while IFS= read -r line; do
        local code=0
        echo "\$ xray $line"
        eval "\"\$XRAY_BIN\" $line" 2>&1 </dev/null || code=$?
        echo "exit code $code"
    done
}
usage() {
    "$XRAY_BIN" 2>&1 >/dev/null | head -n 3
    refusals <<'COMMANDS'
trian
xyzzy
plugin
plugin remove
plugin inspect kindly --plugin-path /no/such/folder
plugin list --plugin-path /no/such/folder
config
algo --help
help config
help nothing
train
train a.ini b.ini
train none.ini --accept-changes=1
check none.ini --job rl
check none.ini --elsewere
sft --log loud none.ini
eval --accept-changes none.ini
tokenize
tokenize --model
tokenize --model= --special on
tokenize --model none --special maybe
tokenize --model none --special o
tokenize --model none --special 'on|off'
tokenize --model none --decode=1
tokenize --model none a b
tokenize --mod none
score --model none
generate --model none --infer
generate --model none --temperature 101
generate --model none --temperature 0.000001
generate --model none --top-p 1.5
generate --model none --top-p 0
generate --model none --top-k 2147483648
generate --model none --top-k 1.5
generate --model none --min-p -0.1
generate --model none --min-p nan
generate --model none --max-tokens 0
generate --model none --max-tokens 2147483648
generate --model none --n 0
generate --model none --n 65537
generate --model none --n two
generate --model none --seed -1
generate --model none --seed 9007199254740993
generate --model none --stop
generate --model none --stop ""
generate --model none --stop a --stop=
generate --model none --stop $'\xff'
generate --model none --stream=1
grade
grade --reward nothing
grade --reward rule --set reward.rule.gradr=x
grade --reward rule --set rule
plugin inspect
plugin inspect nothing
plugin inspect kind --plugin-path .
plugin inspect ./nothing.so
plugin inspect kinds --format yaml
plugin inspect kinds --plugin-path "$work" --format ini -- extra
ab one.ini
ab none.ini none.ini --seeds 0
ab none.ini none.ini --seeds 1001
ab none.ini none.ini --jobs 1025
ab none.ini none.ini --job eval
compare
compare none
compare --lower=1 none
-- train
--nothing
COMMANDS
}
same usage.txt usage
same version.txt sh -c '"$XRAY_BIN" --version | sed "s/ [0-9.]* / N /; s/^build [0-9a-f]*$/build ID/"'

# ---- lines ---------------------------------------------------------------------
mkdir tiny
cat >tiny/config.json <<'JSON'
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16,"num_hidden_layers":1,
"num_attention_heads":2,"num_key_value_heads":2,"intermediate_size":16,"max_position_embeddings":64,
"rms_norm_eps":1e-5,"tie_word_embeddings":false,"hidden_act":"silu","vocab_size":12,"eos_token_id":7}
JSON
cat >tiny/tokenizer.json <<'JSON'
{"model":{"type":"BPE","vocab":{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"-":10},"merges":[]},
"added_tokens":[{"id":11,"content":"</s>","special":true}]}
JSON
cat >tiny/tokenizer_config.json <<'JSON'
{"eos_token":"</s>","chat_template":"{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{% generation %}9{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}-{% endif %}{{ depth }}{{ tools | length if tools }}{{ documents | length if documents }}"}
JSON
cp -r tiny bare
sed -i 's/,"eos_token_id":7//' bare/config.json
tiny=(--model tiny --set model.init=random)
ids() { "$XRAY_BIN" generate "${tiny[@]}" "$@" | sed -E 's/,"text"[^}]*//g'; }
sampled() {
    echo '{"prompt":"12"}' | "$XRAY_BIN" generate "${tiny[@]}" --max-tokens 3
    echo '{"prompt":"12"}' | "$XRAY_BIN" generate "${tiny[@]}" --max-tokens 3 --temperature 0.25
    for more in "" "--seed 5" "--n 3" "--temperature 0" "--top-k 1" "--top-p 0.001" "--min-p 1" "--ignore-eos" "--repetition-penalty 3" "--frequency-penalty 2" "--presence-penalty -2" "--min-tokens 12" "--stop 9 --stop=2"; do
        echo "options: $more"
        # shellcheck disable=SC2086
        printf '{"ids":[1,2]}\n{"ids":[1,2]}\n' | ids --max-tokens 12 $more
    done
    echo "ended by the tokenizer's own:"
    echo '{"ids":[1,2]}' | "$XRAY_BIN" generate --model bare --set model.init=random --max-tokens 40 | grep -o '"ids.*]'
    for count in 63 64; do
        seq -s , 1 $count | sed -e 's/[0-9]*/1/g' -e 's/.*/{"ids":[&]}/' | ids --max-tokens 5 || true
    done
    echo "lines:"
    ids <<'LINES'
{"ids":[1,2],"max_tokens":12}
{"ids":[1,2],"max_tokens":12,"n":2,"seed":5}
{"ids":[1,2],"max_tokens":12,"temperature":0,"ignore_eos":true}
{"ids":[1,2],"max_tokens":4,"top_k":1,"top_p":0.5,"min_p":0.5}
{"ids":[1,2],"max_tokens":12,"repetition_penalty":3,"min_tokens":12}
{"messages":[{"role":"user","content":"12"}],"max_tokens":2,"temperature":0}
{"prompt":""}
{"prompt":"x"}
{"ids":[12]}
{"ids":[1],"prompt":"1"}
{"ids":[1],"n":1.5}
{"ids":[1],"pp":1}
{"ids":[1],"ignore_eos":1}
{"ids":[1],"max_tokens":12,"temperature":0,"stop":"7"}
{"ids":[1],"stop":""}
{"ids":[1],"stop":["1",""]}
{"ids":[1],"stop":{"text":"1"}}
{"messages":[]}
{"messages":"1"}
{"messages":[{"role":"user","content":"1"}],"chat_template_kwargs":3}
{"messages":[{"role":"user","content":"1"}],"add_generation_prompt":"no"}
LINES
}
same generate.txt sampled
scored() {
    "$XRAY_BIN" score "${tiny[@]}" <<'LINES'
{"ids":[1,2,3]}
{"text":"123"}
{"messages":[{"role":"user","content":"12"}]}
{"messages":[{"role":"user","content":"12"}],"add_generation_prompt":true,"chat_template_kwargs":{"depth":5},"tools":[{},{}]}
{"ids":[1]}
{"ids":[]}
{}
{"prompt":"1"}
{"ids":[1,-1]}
LINES
    for count in 64 65; do
        seq -s , 1 $count | sed -e 's/[0-9]*/1/g' -e 's/.*/{"ids":[&]}/' | "$XRAY_BIN" score "${tiny[@]}" |
            sed 's/^\(.\{80\}\).*/\1.../' || true
    done
    seq -s , 0 65 | sed -e 's/[0-9]*/1/g' -e 's/.*/{"ids":[&]}/' | "$XRAY_BIN" score "${tiny[@]}"
}
same score.txt scored
elsewhere() {
    refusals <<'COMMANDS'
generate --model tiny --set model.init=random --infer nothing
score --model tiny --set model.init=random --train nothing
generate --model tiny --set model.init=random --log loud
score --model tiny --set model.init=random none.jsonl
tokenize --model tiny none.jsonl
COMMANDS
}
same options.txt elsewhere
tokenized() {
    "$XRAY_BIN" tokenize --model tiny <<'LINES'
{"text":"12-"}
{"messages":[{"role":"user","content":"12"},{"role":"assistant","content":"3"}]}
{"messages":[{"role":"user","content":"1"}],"add_generation_prompt":true,"chat_template_kwargs":{"depth":7}}
{"messages":[{"role":"assistant","content":"3"},{"role":"user","content":"12"}]}
{"messages":[{"role":"user","content":"1"}],"documents":[{},{},{}],"tools":[{}]}
{"messages":[{"role":"user","content":"x"}]}
{"ids":[1]}
{"text":1}
{}
LINES
    printf '{"ids":[1,11,2]}\n{"ids":[12]}\n{"text":"1"}\n{}\n{"ids":[1],"tex":"1"}\n' >coded
    "$XRAY_BIN" tokenize --model tiny --decode coded || true
    "$XRAY_BIN" tokenize --model tiny --decode --special on coded | head -n 1
    echo '{"text":"1"}' | "$XRAY_BIN" tokenize --model tiny --special off -
}
same tokenize.txt tokenized
graded() {
    local rule=(--set reward.a.grader=exact --set reward.b.grader=regex --set reward.b.pattern="[0-9]+" --set reward.b.weight=0.25)
    printf '%s\n' '{"response":"18","ground_truth":18}' '{"response":"x 18","ground_truth":"18"}' '{"prompt":"p"}' \
        '{"response":"1","data_source":3}' '{"response":"1","ids":[1,"a"]}' '{"response":"1","prompt":{}}' >answers
    "$XRAY_BIN" grade --reward a "${rule[@]:0:2}" answers || true
    "$XRAY_BIN" grade --reward a,b "${rule[@]}" answers
}
same grade.txt graded

# ---- plugins that fall ill -----------------------------------------------------
sick=(--plugin-path "$XRAY_BUILD/tests/sick")
told() {
    printf '%s\n' '{"prompt":"p \u00e9","response":"so 18","ground_truth":18,"data_source":"src","ids":[3,0,11],"more":[1]}' \
        '{"response":""}' | SICK=reward-tells "$XRAY_BIN" grade "${sick[@]}" --reward a --set reward.a.plugin=sick --set reward.a.grader=exact 2>&1
}
same told.txt told
# A value never takes the place of the score.
named() {
    local both=(--set reward.a.plugin=sick --set reward.a.grader=exact --set reward.b.plugin=sick --set reward.b.grader=exact)
    export SICK=reward-names
    echo '{"response":"1","ground_truth":1}' >named.jsonl
    "$XRAY_BIN" grade "${sick[@]}" --reward a "${both[@]:0:4}" named.jsonl
    "$XRAY_BIN" grade "${sick[@]}" --reward a,b "${both[@]}" named.jsonl
    unset SICK
}
same named.txt named
# The second request is refused, the first and third are answered.
ill() {
    for fault in infer-refuses infer-twice infer-other infer-wraps infer-long infer-id infer-logp infer-raw infer-idle; do
        echo "$fault:"
        at=1
        case $fault in infer-refuses) at=2 ;; esac
        printf '{"ids":[1,2]}\n{"ids":[3]}\n{"ids":[1,2]}\n' |
            SICK=$fault SICK_AT=$at "$XRAY_BIN" generate "${tiny[@]}" "${sick[@]}" --infer sick --max-tokens 2 \
                --temperature 0 --n 2 2>&1 | sed -E 's/,"text"[^}]*//g; s/ -nan/ nan/' || true
    done
    for fault in infer-twice infer-other infer-long infer-first infer-empty infer-finish infer-idle infer-abort; do
        echo "$fault, streamed:"
        printf '{"ids":[1,2]}\n{"ids":[3]}\n' |
            SICK=$fault SICK_AT=1 "$XRAY_BIN" generate "${tiny[@]}" "${sick[@]}" --infer sick --max-tokens 6 \
                --temperature 0 --n 2 --stop 6 --stream 2>&1 || true
    done
}
same ill.txt ill

# ---- plans -------------------------------------------------------------------
mkdir model
cp "$XRAY_TEST_DATA/models/stories260K/hf/tokenizer.json" model/
cat >model/config.json <<'JSON'
{"architectures":["LlamaForCausalLM"],"model_type":"llama","bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
"hidden_size":64,"intermediate_size":172,"max_position_embeddings":512,"num_attention_heads":8,"num_hidden_layers":5,
"num_key_value_heads":4,"rms_norm_eps":1e-5,"initializer_range":0.02,"tie_word_embeddings":true,"vocab_size":512}
JSON
for prompt in Once Two One Six; do echo "{\"prompt\":\"$prompt\",\"answer\":\"1\"}"; done >rows.jsonl
cat >run.ini <<'INI'
[run]
threads = 1
[model]
path = model
init = random
[data]
train_files = rows.jsonl
max_prompt_length = 16
max_response_length = 8
train_batch_size = 4
[rollout]
n = 3
[actor]
ppo_mini_batch_size = 2
ppo_epochs = 2
ppo_max_token_len_per_gpu = 48
[algo.grpo]
use_kl_loss = true
[trainer]
default_local_dir = out
total_training_steps = 3
[sft]
train_batch_size = 4
max_token_len = 48
[device.cpu]
memory = 1G
INI
# A plan's bytes are its plugins'; here they are one word, so that only what the
# program says of them counts.
figures() { sed -E -e 's/ [0-9.]+ (bytes|[KMG]iB)/ SIZE/g' -e 's/  +SIZE/ SIZE/g' -e 's/[0-9]+ % planned/N % planned/'; }
plan() { "$XRAY_BIN" plan run.ini "$@" | figures; }
same plan.txt plan
same plan-sft.txt plan --job sft
same plan-turns.txt plan --set rollout.free_cache_engine=true --set actor.optimizer_offload=true
# The lines that only some runs have: a critic, prompts that rows share, moments in host memory.
only() { "$XRAY_BIN" plan run.ini "${@:2}" | grep -E "$1"; }
some() {
    only '^critic' --set run.algo=ppo
    only '^(tokens|update )' --set actor.share_prompts=true --set actor.ppo_max_token_len_per_gpu=96
    only '^host' --set train.zero3.offload_optimizer=host
    only '^(a step|no prediction)' --job eval --machine h200
}
same plan-some.txt some
timed() { plan "$@" | sed -n '/^assumed/,$p'; }
same plan-time.txt timed --machine h200,network=25e9 --set run.train=megatron --set run.ranks=2 \
    --set train.megatron.tensor_model_parallel_size=2
same plan-machine.txt plan --machine h201
same plan-cut.txt plan --set run.train=megatron --set run.ranks=2 --set train.megatron.tensor_model_parallel_size=2 \
    --set ref.train.megatron.tensor_model_parallel_size=1
json_figures() { sed -E -e 's/"(weights|optimizer|gradients|activations|kv|workspace|all|other|checkpoint_bytes)":[1-9][0-9]*/"\1":SIZE/g' -e 's/("turns":.*)/\1/' -e '/"turns"/s/:[0-9]+/:SIZE/g'; }
json_plan() { "$XRAY_BIN" plan run.ini --json "$@" | json_figures; }
same plan.json json_plan --set rollout.free_cache_engine=true
# 3 replicas of 2 ranks each.
wide() { json_plan --set run.train=megatron --set run.ranks=6 "$@" | grep -o '"replicas":.*}}'; }
same plan-wide.json wide --set train.megatron.tensor_model_parallel_size=2 --set ref.train.megatron.tensor_model_parallel_size=1
timed_json() { json_plan --machine flops32=4e11,memory=3e10 | sed -n '/"time"/,$p'; }
same plan-time.json timed_json
all=$("$XRAY_BIN" plan run.ini --json | sed -n 's/^ "bytes".*"all":\([0-9]*\)}.*/\1/p')
half() { "$XRAY_BIN" plan run.ini --set device.cpu.memory=$((2 * all)) | grep -o '[0-9]* % planned'; }
same plan-half.txt half
small() { "$XRAY_BIN" plan run.ini --set device.cpu.memory=1M 2>&1 >/dev/null | sed -E 's/[0-9.]+ MiB/SIZE/g'; }
same plan-small.txt small

# A device that this machine lacks: an error, or a warning for another machine.
absent() {
    SICK=device-absent "$XRAY_BIN" check run.ini "${sick[@]}" --set run.device=sick --set trainer.default_local_dir=made "$@" | tail -n 1
}
checked() {
    absent || echo "exit code $?"
    absent --elsewhere
    SICK=well "$XRAY_BIN" check run.ini "${sick[@]}" --set run.device=sick --set trainer.default_local_dir=made | tail -n 1
}
same absent.txt checked
own_memory() {
    export SICK=device-memory
    "$XRAY_BIN" plan run.ini "${sick[@]}" --set run.device=sick --set device.sick.memory=1G "$@"
    unset SICK
}
own_memories() {
    own_memory | figures | grep '^machine'
    own_memory --json | grep '"machine"'
}
same own-memory.txt own_memories

[ "$failures" = 0 ] || exit 1
echo "goldens: ok"
