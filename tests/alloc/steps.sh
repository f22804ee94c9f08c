#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# steps.sh COUNTER
#
# Between steps 3 and 6 of a run our own code allocates nothing, except tokenizers
# (model/text), rewards, and libraries on their behalf. COUNTER is preloaded
# (steps.c); addr2line names the functions of a call stack.
. "$(dirname "$0")/../rl/lib.sh"
command -v addr2line >/dev/null || { echo "skipped: no addr2line"; exit 77; }
counter=$1
make_task

# Stacks as "count<TAB>function file:line < function file:line < ...".
resolve() { # FILE
    local count frames frame module
    while read -r count frames; do
        [ "$count" = end ] && return 0
        printf '%s\t' "$count"
        for frame in $frames; do
            module=${frame%+*}
            case $module in
            */xray | */plugins/*.so)
                addr2line -f -e "$module" "${frame##*+}" | tr '\n' ' '
                printf '< '
                ;;
            *) printf '%s < ' "${module##*/}" ;;
            esac
        done
        printf '\n'
    done <"$1"
    fail "the counter wrote no end"
}

count_of() { # NAME [--set ...]
    local name=$1 own
    shift
    XRAY_STEPS="3 6" XRAY_STEPS_OUT="$work/$name.stacks" LD_PRELOAD=$counter \
        train "$work/$name" --set trainer.total_training_steps=7 \
        --set trainer.val_after_train=false "$@" >/dev/null
    resolve "$work/$name.stacks" >"$work/$name.resolved"
    own=$(grep -vE '/(model/text|plugins/reward-rule)/' "$work/$name.resolved" || true)
    if [ -n "$own" ]; then
        printf '%s\n' "$own" | sed "s|$XRAY_SOURCE/||g" | head -n 40
        fail "$name: our code allocates in steps 4 to 6"
    fi
    echo "$name: 0 allocations of our own, $(awk '{ n += $1 } END { print n + 0 }' "$work/$name.resolved") of tokenizers and rewards"
}

count_of plain
count_of threads --set run.threads=2 --set actor.ppo_max_token_len_per_gpu=40
count_of reference --set algo.grpo.use_kl_loss=true --set rollout.max_num_seqs=3
count_of critic --set run.algo=ppo --set critic.shuffle=true
count_of head --set run.algo=ppo --set algo.ppo.preset=trlx
count_of greedy --set algo.grpo.preset=remax
count_of tracked --set trainer.logger=jsonl,tensorboard
# The counter counts: the first step warms up.
XRAY_STEPS="0 1" XRAY_STEPS_OUT="$work/first.stacks" LD_PRELOAD=$counter \
    train "$work/first" --set trainer.total_training_steps=1 >/dev/null
resolve "$work/first.stacks" >"$work/first.resolved"
grep -q 'core/' "$work/first.resolved" || fail "the counter saw nothing in the first step"
