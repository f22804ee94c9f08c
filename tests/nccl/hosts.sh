#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs with comm = nccl on two hosts, which are network namespaces, with the kernels of
# device-cuda on the host and a false NCCL: their ranks meet through the run and have the
# checkpoint of local ranks with comm = shm, and a host that cannot take part is named.
# Needs root and namespaces.
set -euo pipefail
. "$(dirname "$0")/../rl/namespaces.sh"
enter_net "" "$@"
ip addr add 10.77.0.1/24 dev br0
make_host a 2
make_host b 3

. "$(dirname "$0")/../rl/lib.sh"
make_task
cuda_on_host
nccl=$XRAY_BUILD/tests/libfake-nccl.so
# Starts a Workhorse on a host. In LACKS the library is another file, for this host alone:
# `ip netns exec` gives it mounts of its own.
cat >"$work/start" <<START
#!/bin/bash
[ "\$1" != "\${LACKS:-}" ] || mount --bind "$work/run.ini" "$nccl"
export XRAY_FAKE_STREAMS=others XRAY_FAKE_DOMAIN=\$1
exec "$XRAY_BIN" workhorse "\$2"
START
chmod +x "$work/start"
duo=(--set run.ranks=2 --set run.threads=1 --set run.train=zero3 --set trainer.total_training_steps=2)
hosts=(--set run.runtime=hosts --set runtime.interface=br0 --set placement.hosts=a:1,b:1
    --set "runtime.hosts.launch=ip netns exec {host} $work/start {host} {address}"
    --set run.comm=nccl --set "comm.nccl.library=$nccl" --set "comm.nccl.driver=$nccl"
    --set run.device=cuda --set device.cuda.precision=float32)

train "$work/local" "${duo[@]}" --set run.comm=shm >/dev/null 2>&1
train "$work/hosts" "${duo[@]}" "${hosts[@]}" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_checkpoint "$work/local/global_step_2" "$work/hosts/global_step_2"

if LACKS=b train "$work/lacks" "${duo[@]}" "${hosts[@]}" >/dev/null 2>"$work/err"; then
    fail "a host without NCCL is not noticed"
fi
cat "$work/err"
echo "nccl.hosts: ok"
