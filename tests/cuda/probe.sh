#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xray check reports the errors that xray train would report about the device of
# this machine: with an emulated GPU, without a driver, and with fewer GPUs than
# the index requires. --elsewhere checks a run for another machine.
. "$(dirname "$0")/../rl/lib.sh"
make_task
cuda_on_host
xray() { "$work/bin/xray" "$1" "$work/run.ini" --set run.device=cuda --set "trainer.default_local_dir=$work/out" "${@:2}"; }

xray check >"$work/log" 2>&1 || fail "with a GPU: $(cat "$work/log")"
# lacks SENTENCE [ARGS...]
lacks() {
    local said=$1 text="device.cuda: device cuda: $1" code=0
    shift
    xray train "$@" >/dev/null 2>"$work/log" || code=$?
    [ "$code" != 0 ] && grep -Fq "$said" "$work/log" || fail "train $*: exit $code: $(cat "$work/log")"
    code=0
    xray check "$@" >/dev/null 2>"$work/log" || code=$?
    [ "$code" = 2 ] && [ "$(cat "$work/log")" = "xray: --set: [run] device: $text; a run for another machine is checked with --elsewhere" ] ||
        fail "check $*: exit $code: $(cat "$work/log")"
    xray check --elsewhere "$@" >"$work/out.txt" 2>"$work/log" || fail "--elsewhere $*: $(cat "$work/log")"
    grep -qx ok "$work/out.txt" && [ "$(cat "$work/log")" = "xray: warning: a run on this machine would fail: $text" ] ||
        fail "--elsewhere $*: $(cat "$work/log")"
    xray plan "$@" >/dev/null 2>"$work/log" || fail "a run cannot be planned: $(cat "$work/log")"
}
lacks "index = 3, but this process sees 1 GPU, counted from 0" --set device.cuda.index=3
grep -q "\[device.cuda\] index = 3" <(xray train --set device.cuda.index=3 2>&1) || fail "train does not say which key asks for a GPU"
export XRAY_EMULATED_GPUS=-1
lacks "this machine has no NVIDIA driver (libcuda.so.1 is not found), so no GPU can be used; use device = cpu"
[ ! -e "$work/out" ] || fail "something was written"
echo "probe: ok"
