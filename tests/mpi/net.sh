#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A job of MPI on two hosts, which are network namespaces with cables to a bridge: it
# has the checkpoint of local ranks bit for bit, with either comm; ranks are in the order of hosts although
# MPI has them in another, and a cable that is cut ends the job with a sentence. Needs
# root, namespaces and Open MPI's mpirun.
set -euo pipefail
. "$(dirname "$0")/../rl/namespaces.sh"
enter_net "" "$@"
ip addr add 10.77.0.1/24 dev br0
make_host a 2
make_host b 3

. "$(dirname "$0")/lib.sh"
command -v mpirun.openmpi >/dev/null || skip "there is no mpirun.openmpi (package openmpi-bin)"
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\nsave_freq = 2/" "$work/run.ini"
four=(--set run.ranks=4 --set run.comm=tcp)
cat >"$work/agent" <<'AGENT'
#!/bin/bash
# mpirun starts what it needs on a host by this, in place of ssh.
host=$1
shift
exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"
AGENT
chmod +x "$work/agent"
net=10.77.0.0/24
job() { # FOLDER [--set ...]: the first ranks of MPI are on the host whose name is the last
    mpirun.openmpi --host b:2,a:2 -n 4 --bind-to none --mca plm_rsh_agent "$work/agent" \
        --mca oob_tcp_if_include $net --mca btl_tcp_if_include $net -x XRAY_MPI_TEST \
        "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/$1" "${four[@]}" \
        --set run.runtime=mpi --set runtime.interface=eth0 "${@:2}" >"$work/out" 2>"$work/err"
}

train "$work/local" "${four[@]}" --set run.runtime=local --set trainer.total_training_steps=3 >/dev/null
job hosts --set trainer.total_training_steps=3 || fail "the job ended with $?: $(cat "$work/err")"
same_checkpoint "$work/local/global_step_3" "$work/hosts/global_step_3"
diff <(steady "$work/local/metrics.jsonl") <(steady "$work/hosts/metrics.jsonl") || fail "metrics differ"
nothing_left hosts
job collectives --set run.comm=mpi --set trainer.total_training_steps=3 || fail "comm mpi: $?: $(cat "$work/err")"
same_checkpoint "$work/local/global_step_3" "$work/collectives/global_step_3"
nothing_left collectives

# The cable to host a, on which are ranks 0 and 1 of the run.
job cut --set trainer.total_training_steps=100000 &
pid=$!
until [ -e "$work/cut/global_step_2" ]; do
    kill -0 "$pid" 2>/dev/null || fail "the job ended: $(cat "$work/err")"
    sleep 0.05
done
ip link set to-a down
said() {
    grep -Eq "actor workhorse [01] on a \(rank [01]\): (method [a-z_]+|no method ran): hangs: no sign of life for 3\.[0-9] s, its host or the network to it may be down \(killed\)" "$work/err"
}
for _ in $(seq 300); do
    ! said || break
    sleep 0.1
done
said || fail "the lost host is not named: $(cat "$work/err")"
# Every process of the run ends, also on the host that is cut off. mpirun itself may wait
# for that host for ever.
for _ in $(seq 200); do
    left=$(for at in $(of_job); do ! grep -qsx xray "/proc/$at/comm" || ! grep -qsE "^State:.[RSDT]" "/proc/$at/status" || echo "$at"; done)
    [ -n "$left" ] || break
    sleep 0.1
done
[ -z "$left" ] || fail "processes are left: $left"
ip link set to-a up
{
    kill -KILL "$pid" $(pgrep -P "$pid")
    wait "$pid" || true
} 2>/dev/null
for at in $(of_job); do
    ! grep -qsx orted "/proc/$at/comm" || kill -KILL "$at"
done
nothing_left cut
echo "mpi.net: ok"
