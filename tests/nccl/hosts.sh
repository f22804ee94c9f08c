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
# Starts a Workhorse on a host. On that of LACKS the library is another file, since
# `ip netns exec` gives it mounts of its own, and on that of OLD another version.
cat >"$work/start" <<START
#!/bin/bash
[ "\$1" != "\${LACKS:-}" ] || mount --bind "$work/run.ini" "$nccl"
[ "\$1" != "\${OLD:-}" ] || export XRAY_FAKE_VERSION=21805
export XRAY_FAKE_STREAMS=others XRAY_FAKE_DOMAIN=\$1
exec "$XRAY_BIN" workhorse "\$2"
START
chmod +x "$work/start"
# A second step has the code of the first, which is enough for a sanitizer.
steps=2
! sanitized || steps=1
duo=(--set run.ranks=2 --set run.threads=1 --set run.train=zero3 --set trainer.total_training_steps=$steps)
hosts=(--set run.runtime=hosts --set runtime.interface=br0 --set placement.hosts=a:1,b:1
    --set "runtime.hosts.launch=ip netns exec {host} $work/start {host} {address}"
    --set run.comm=nccl --set run.comm_timeout=60s --set "comm.nccl.library=$nccl" --set "comm.nccl.driver=$nccl"
    --set run.device=cuda --set device.cuda.precision=float32)

train "$work/local" "${duo[@]}" --set run.comm=shm >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
train "$work/hosts" "${duo[@]}" "${hosts[@]}" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_checkpoint "$work/local/global_step_$steps" "$work/hosts/global_step_$steps"

said() { # SENTENCE
    grep -Eq "$1" "$work/err" || fail "expected $1; got: $(cat "$work/err")"
}
if LACKS=b train "$work/lacks" "${duo[@]}" "${hosts[@]}" >/dev/null 2>"$work/err"; then
    fail "a host without NCCL is not noticed"
fi
# Whichever rank is heard first: it has the reason, or names the one that has.
said "actor workhorse (1 on b \(rank 1\): .*comm nccl: this machine cannot run it: $nccl: invalid ELF header|0 on a \(rank 0\): .*comm nccl: rank 1 \(pid [0-9]+\) cannot take part)"
if OLD=b train "$work/old" "${duo[@]}" "${hosts[@]}" >/dev/null 2>"$work/err"; then
    fail "a host with another NCCL is not noticed"
fi
said "actor workhorse [01] on [ab] \(rank [01]\): .*comm nccl: rank 0 has NCCL 22809, but rank 1 has 21805"
echo "nccl.hosts: ok"
