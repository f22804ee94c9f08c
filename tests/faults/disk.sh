#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If the disk is full, broken or read-only, a run ends with exit code 1 and one message,
# leaves the last good checkpoint unchanged and no half-written file; the next run
# resumes from that checkpoint.
. "$(dirname "$0")/lib.sh"
# A last step is validated, which one in the middle is not.
sed -i "s/^val_before_train = .*/&\nval_after_train = false/" "$work/run.ini"
steps 3
train "$work/whole" --set trainer.save_freq=2 >/dev/null 2>&1
steps 2
train "$work/good" --set trainer.save_freq=2 >/dev/null 2>&1
steps 3
export FAULT_PATHS=global_step_:latest_checkpointed
ENOSPC=28 EIO=5

# The checkpoint of step 3: how many operations, how many bytes.
cp -r "$work/good" "$work/counted"
FAULT_LOG=$work/count shimmed A=1 -- "$work/counted" >/dev/null 2>&1
operations=$(cat "$work/count")
size=$(du -bs "$work/counted/global_step_3" | cut -f 1)
[ "$operations" -gt 25 ] || fail "only $operations operations were counted"

# fails WHAT SENTENCE VAR=VALUE...
fails() {
    local what=$1 sentence=$2 code=0 dir=$work/bad
    shift 2
    rm -rf "$dir"
    cp -r "$work/good" "$dir"
    shimmed "$@" -- "$dir" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "$what: exit $code: $(cat "$work/err")"
    [ "$(grep -c '^xray: checkpoint of step 3: ' "$work/err")" = 1 ] && grep -q "$sentence" "$work/err" ||
        fail "$what: $(cat "$work/err")"
    diff -r "$work/good/global_step_2" "$dir/global_step_2" >/dev/null || fail "$what: the good checkpoint was changed"
    no_leftovers "$dir"
    # Step 3 is there whole or not at all.
    [ ! -e "$dir/global_step_3" ] || same_checkpoint "$work/whole/global_step_3" "$dir/global_step_3"
    [ "$resume" = 1 ] || return 0
    train "$dir" >/dev/null 2>"$work/err" || fail "$what: cannot go on: $(cat "$work/err")"
    same_run "$work/whole" "$dir" 3
    no_leftovers "$dir"
}

# Every operation fails once. A sanitizer's start takes long: every tenth.
every=1
if sanitized; then every=10; fi
for at in $(seq 1 $every "$operations"); do
    resume=$((at % 5 == 1))
    fails "operation $at" "Input/output error" FAULT_AT="$at" FAULT_ERRNO=$EIO
done
# The disk fills up at some byte.
resume=1
for part in 0 1 2 5 9; do
    fails "$part tenths of the bytes" "No space left on device" FAULT_BYTES=$((size * part / 10 + 1)) FAULT_ERRNO=$ENOSPC
done

# A folder that may not be written to. root may; then another user tries.
as_other=()
if [ "$(id -u)" = 0 ]; then
    if setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$XRAY_BIN" 2>/dev/null; then
        as_other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chmod 755 "$work"
    else
        echo "skipped: read-only folder: the user is root and no other can run the program"
        as_other=(skip)
    fi
fi
if [ "${as_other[*]:-}" != skip ]; then
    rm -rf "$work/bad"
    cp -r "$work/good" "$work/bad"
    [ ${#as_other[@]} = 0 ] || chown -R 65534:65534 "$work/bad"
    chmod -R a+rX "$work"
    chmod 555 "$work/bad"
    code=0
    "${as_other[@]}" "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/bad" \
        >/dev/null 2>"$work/err" || code=$?
    chmod 755 "$work/bad"
    [ "$code" = 1 ] || fail "read-only: exit $code: $(cat "$work/err")"
    grep -q "^xray: checkpoint of step 3: .*Permission denied" "$work/err" || fail "read-only: $(cat "$work/err")"
    train "$work/bad" >/dev/null 2>&1 || fail "read-only: cannot go on"
    same_run "$work/whole" "$work/bad" 3
fi

# A real file system without room.
# It holds the checkpoints of steps 0 and 2 and half of another.
mkdir "$work/small"
blocks=$(du -s --block-size=1 "$work/good/global_step_2" | cut -f 1)
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=$((blocks * 5 / 2)) tmpfs "$work/small" 2>/dev/null; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    code=0
    shimmed A=1 -- "$work/small/run" --set trainer.save_freq=2 >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "tmpfs: exit $code: $(cat "$work/err")"
    grep -q "^xray: checkpoint of step 3: .*No space left on device" "$work/err" || fail "tmpfs: $(cat "$work/err")"
    no_leftovers "$work/small/run"
    mount -o remount,size=$((blocks * 5)) "$work/small"
    train "$work/small/run" --set trainer.save_freq=2 >/dev/null 2>"$work/err" || fail "tmpfs: $(cat "$work/err")"
    same_run "$work/whole" "$work/small/run" 3

    # What has no room from the start does not start.
    mount -o remount,size=$((blocks * 3)) "$work/small"
    dd if=/dev/zero of="$work/small/rest" bs=64k 2>/dev/null || true
    code=0
    "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/small/other" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "no room: exit $code: $(cat "$work/err")"
    grep -q "default_local_dir: 1 checkpoint of .* takes .*, the file system of $work/small has .* left" "$work/err" ||
        fail "no room: $(cat "$work/err")"
    [ ! -e "$work/small/other" ] || fail "no room: something was written"
else
    echo "skipped: tmpfs: it takes root and the right to mount"
fi
echo "faults.disk: $operations operations: ok"
