#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Without a driver the plugin is listed and a run for it can be planned, and
# starting such a run fails with one sentence that gives the reason.
. "$(dirname "$0")/../rl/lib.sh"
if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    echo "skipped: this machine has an NVIDIA driver"
    exit 77
fi
make_task
"$XRAY_BIN" plugin list | grep -q 'device-cuda' || fail "the plugin is not listed"
"$XRAY_BIN" check "$work/run.ini" --set run.device=cuda --set device.cuda.memory=1G --elsewhere >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "a run on a GPU cannot be planned"; }
! "$XRAY_BIN" check "$work/run.ini" --set run.device=cuda >"$work/log" 2>&1 || fail "check says ok where train fails"
! train "$work/out" --set run.device=cuda >"$work/log" 2>&1 || fail "it runs without a driver"
grep -q 'this machine has no NVIDIA driver (libcuda.so.1 is not found)' "$work/log" ||
    { cat "$work/log"; fail "no sentence says why"; }
echo "driverless: ok"
