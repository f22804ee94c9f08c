# SPDX-License-Identifier: Apache-2.0
#
# Shared by the end-to-end tests: makes a small task in a folder of its own, and
# compares runs. Each test runs with XRAY_BIN and XRAY_BUILD set.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# XRAY_BIN becomes a program whose cuda device runs its kernels on the host.
# Only one plugin may have the name, so the real device-cuda is left out.
cuda_on_host() {
    local module
    mkdir -p "$work/bin/plugins"
    for module in "$XRAY_BUILD"/plugins/*.so "$XRAY_BUILD/tests/cuda/device-cuda.so"; do
        [ "$module" = "$XRAY_BUILD/plugins/device-cuda.so" ] || ln -s "$module" "$work/bin/plugins/"
    done
    cp "$XRAY_BIN" "$work/bin/xray"
    XRAY_BIN=$work/bin/xray
}

# The quickstart's task with a smaller, randomly initialized model and a short
# INI. About a third of the first samples is right, so every step learns.
make_task() {
    "$XRAY_BUILD/quickstart-task" "$work/task" 7
    sed -i -E 's/("hidden_size"): *[0-9]+/\1: 48/; s/("num_hidden_layers"): *[0-9]+/\1: 2/
        s/("num_attention_heads"): *[0-9]+/\1: 4/; s/("num_key_value_heads"): *[0-9]+/\1: 2/
        s/("intermediate_size"): *[0-9]+/\1: 80/' "$work/task/model/config.json"
    head -n 400 "$work/task/train.jsonl" >"$work/task/short.jsonl"
    head -n 16 "$work/task/val.jsonl" >"$work/task/val16.jsonl"
    cat >"$work/run.ini" <<INI
[run]
reward = close
seed = 11
[model]
path = $work/task/model
init = random
[data]
train_files = $work/task/short.jsonl
val_files = $work/task/val16.jsonl
prompt_key = question
answer_key = answer
template = "{question}"
max_prompt_length = 12
max_response_length = 5
train_batch_size = 8
[rollout]
n = 4
max_num_seqs = 16
[actor]
ppo_mini_batch_size = 4
ppo_max_token_len_per_gpu = 256
ppo_epochs = 2
recompute_old_logp = 1
[actor.optim]
lr = 1e-3
[trainer]
total_training_steps = 6
val_before_train = true
logger = jsonl
[reward.close]
plugin = rule
grader = regex
pattern = "^[13579]"
match_only = true
INI
}

# True under a sanitizer, where a run takes many times as long: tests leave out what
# has been executed once and is compared in other builds.
sanitized() { [ -n "${XRAY_SANITIZE:-}" ]; }

# Prints the metrics except times and speeds, which differ between runs.
steady() {
    sed -E 's/"(timing_[^"]*|perf\/[^"]*)":[^,}]*,?//g; s/,}/}/' "$1"
}

# Expects two checkpoints to hold the same bits: weights, optimizer, state.
same_checkpoint() {
    for file in actor/model.safetensors actor/optim.safetensors state.json; do
        cmp "$1/$file" "$2/$file" || fail "$1/$file and $2/$file differ"
    done
}

train() { # FOLDER [--set ...]
    local dir=$1
    shift
    "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$dir" "$@"
}

# Expects every name in a file of metrics to be in docs/metrics.md, in full or
# with an asterisk; names of validation, rewards and corrections by their kind.
documented() { # FILE
    local name
    for name in $(grep -oE '"[a-zA-Z_.-]+/[^"]*":' "$1" | tr -d '":' | sort -u); do
        case $name in
        val-core/*/reward/* | val-aux/*/reward/best@* | rollout_corr/*) continue ;;
        reward.*/*) name=reward.NAME/VALUE ;;
        esac
        grep -qF "\`$name\`" "$XRAY_SOURCE/docs/metrics.md" ||
            grep -qF "\`${name%/*}\` *" "$XRAY_SOURCE/docs/metrics.md" ||
            fail "docs/metrics.md does not name $name"
    done
}
