#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that a run whose engine has a paged cache ends with the bits of one with
# a contiguous cache, at any size of its blocks and of its pool, also where the
# activations are bf16; and that drafts change no bit of a run with either cache.
# Traces of these runs are whole, and tell what happened.
. "$(dirname "$0")/lib.sh"
make_task
steps=(--set trainer.total_training_steps=2)
train "$work/dsinf" "${steps[@]}" >/dev/null
for set in kv_memory=64K block_size=48 enable_prefix_caching=false max_num_batched_tokens=19; do
    rm -rf "$work/paged"
    train "$work/paged" "${steps[@]}" --set run.infer=paged --set "infer.paged.$set" \
        --set "infer.paged.trace=$work/$set.json" >/dev/null
    same_checkpoint "$work/dsinf/global_step_2" "$work/paged/global_step_2"
    diff <(steady "$work/dsinf/metrics.jsonl") <(steady "$work/paged/metrics.jsonl") || fail "metrics with $set differ"
done
python3 - "$work" <<'EOF' || fail "a trace is not as expected"
import collections, glob, json, sys

told = {}
for path in glob.glob(sys.argv[1] + "/*=*.json"):
    events = json.load(open(path))
    told[path.split("/")[-1]] = collections.Counter(
        e["args"].get("event", e["name"]) for e in events if "args" in e)
assert len(told) == 4
for events in told.values():
    assert events["start"] == events["finish"] > 0 and events["step"] > 0
    assert events["version"] == 2
assert told["kv_memory=64K.json"]["step"] > told["block_size=48.json"]["step"]
EOF
for name in dsinf paged; do
    rm -rf "$work/drafts"
    train "$work/drafts" "${steps[@]}" --set run.infer=$name --set infer.$name.speculate=4 >/dev/null
    same_checkpoint "$work/dsinf/global_step_2" "$work/drafts/global_step_2"
    diff <(steady "$work/dsinf/metrics.jsonl") <(steady "$work/drafts/metrics.jsonl") || fail "metrics with drafts differ"
    grep -q "\"perf/infer.$name/num_accepted_tokens\":[1-9]" "$work/drafts/metrics.jsonl" || fail "$name accepted no draft"
done
half=(--set model.dtype=bfloat16)
train "$work/half" "${steps[@]}" "${half[@]}" >/dev/null
train "$work/half2" "${steps[@]}" "${half[@]}" --set run.infer=paged >/dev/null
same_checkpoint "$work/half/global_step_2" "$work/half2/global_step_2"
echo "rl.paged: ok"
