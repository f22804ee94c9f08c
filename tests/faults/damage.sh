#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A resume from a damaged checkpoint names the file, its damage and the newest intact
# checkpoint; a resume from that one gives the bits of the uninterrupted run.
. "$(dirname "$0")/lib.sh"
# A last step is validated, which one in the middle is not.
sed -i "s/^val_before_train = .*/&\nval_after_train = false/" "$work/run.ini"
steps 4
train "$work/whole" --set trainer.save_freq=2 >/dev/null 2>&1
steps 3
train "$work/good" --set trainer.save_freq=1 >/dev/null 2>&1
steps 4
bad=$work/bad
step3=$bad/global_step_3
whole="; $bad/global_step_2 is complete, resume from it with --set trainer.resume_from_path=$bad/global_step_2"

fresh() { rm -rf "$bad"; cp -r "$work/good" "$bad"; }
flip() { # FILE OFFSET: one bit
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
refused() { # SENTENCE, checksums as #
    local code=0
    train "$bad" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "exit $code: $(cat "$work/err"), expected: $1"
    sed -E 's/[0-9a-f]{16}/#/g' "$work/err" >"$work/said"
    [ "$(cat "$work/said")" = "xray: resume from $step3: $1" ] || fail "$(cat "$work/said"), expected: $1"
}
size() { stat -c %s "$1"; }

for file in actor/model.safetensors actor/optim.safetensors actor/config.json state.json run.ini; do
    fresh
    bytes=$(size "$step3/$file")
    truncate -s $((bytes - 1)) "$step3/$file"
    refused "$step3/$file has $((bytes - 1)) bytes, its manifest says $bytes$whole"
    fresh
    for at in 0 $((bytes / 2)) $((bytes - 1)); do
        fresh
        flip "$step3/$file" "$at"
        refused "$step3/$file is damaged: its checksum is #, its manifest says #$whole"
    done
    fresh
    rm "$step3/$file"
    refused "$step3/$file is missing$whole"
done
fresh
: >"$step3/actor/model.safetensors"
refused "$step3/actor/model.safetensors has 0 bytes, its manifest says $(size "$work/good/global_step_3/actor/model.safetensors")$whole"
fresh
touch "$step3/actor/notes.txt"
refused "$step3/actor/notes.txt does not belong to the checkpoint: its manifest does not list it$whole"
fresh
rm "$step3/manifest.json"
refused "$step3/manifest.json is missing$whole"
bytes=$(size "$work/good/global_step_3/manifest.json")
for at in 0 20 $((bytes / 2)) $((bytes - 30)) $((bytes - 10)) $((bytes - 1)); do
    fresh
    flip "$step3/manifest.json" "$at"
    refused "$step3/manifest.json is cut off or damaged$whole"
done
fresh
truncate -s 100 "$step3/manifest.json"
refused "$step3/manifest.json is cut off or damaged$whole"
fresh
rm -r "$step3"
refused "$step3: there is no such folder$whole"

# The one before is damaged too, and then all are.
fresh
flip "$step3/state.json" 5
rm "$bad/global_step_2/run.ini"
refused "$step3/state.json is damaged: its checksum is #, its manifest says #; $bad/global_step_1 is complete, resume from it with --set trainer.resume_from_path=$bad/global_step_1"
rm "$bad"/global_step_[01]/manifest.json
refused "$step3/state.json is damaged: its checksum is #, its manifest says #; no other checkpoint in $bad is complete"

# Nothing was cut off or removed by being refused; going on as told works, and
# keep-last-n does not take what is new for old, with later steps of the run that
# was given up beside it.
fresh
flip "$step3/actor/model.safetensors" 5000
refused "$step3/actor/model.safetensors is damaged: its checksum is #, its manifest says #$whole"
cp -r "$step3" "$bad/global_step_8"
cp -r "$step3" "$bad/global_step_9"
diff "$work/good/metrics.jsonl" "$bad/metrics.jsonl" >/dev/null || fail "a refused resume changed the metrics"
train "$bad" --set "trainer.resume_from_path=$bad/global_step_2" --set trainer.save_freq=1 \
    --set trainer.max_actor_ckpt_to_keep=2 >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_run "$work/whole" "$bad" 4
[ "$(echo $(ls "$bad" | grep global_step))" = "global_step_3 global_step_4 global_step_8 global_step_9" ] ||
    fail "kept: $(ls "$bad")"
same_checkpoint "$work/good/global_step_3" "$step3"
no_leftovers "$bad"

# A kill between the two renames that replace a checkpoint loses none.
fresh
mv "$step3" "$bad/.replaced-global_step_3"
mkdir -p "$bad/global_step_4.tmp/actor" "$bad/.removed-global_step_0"
touch "$bad/latest_checkpointed_iteration.txt.tmp-1-2-0"
train "$bad" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_run "$work/whole" "$bad" 4
no_leftovers "$bad"
echo "faults.damage: ok"
