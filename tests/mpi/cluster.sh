# SPDX-License-Identifier: Apache-2.0
#
# A cluster of Slurm on this machine: munged and slurmctld here, and a slurmd on each of
# two hosts, which are network namespaces. Everything that is started is in a namespace
# of processes, and ends with the script. Sourced first, since the script is started
# again.
. "$(dirname "${BASH_SOURCE[0]}")/../rl/namespaces.sh"

# Starts the script again, with its arguments, as the first process of the namespaces.
enter_cluster() { # ARGUMENT...
    local tool
    if [ -z "${XRAY_CLUSTER:-}" ]; then
        for tool in munged slurmctld slurmd srun nsenter; do
            command -v "$tool" >/dev/null || skip "there is no Slurm (packages slurm-wlm and munge): no $tool"
        done
        # Slurm's own plugin opens the library by the name that only the -dev package has.
        ldconfig -p | grep "libpmix\.so " >/dev/null || skip "Slurm finds no PMIx (package libpmix-dev)"
        [ "$(id -u)" = 0 ] || skip "Slurm's daemons need root"
        unshare --pid --fork --mount-proc true 2>/dev/null || skip "this system makes no namespaces of processes"
        exec env XRAY_CLUSTER=1 unshare --pid --fork --kill-child --mount-proc "$0" "$@"
    fi
    enter_net "" "$@"
    mount -t tmpfs none /dev/shm # MPI's names are those of jobs, which other clusters have, too
    ip addr add 10.77.0.1/24 dev br0
    make_host a 2
    make_host b 3
}

# A node has more processors than the machine, so that the template's tasks fit, and a
# folder of its own for PMIx, which hosts have, but not namespaces.
write_conf() { # FOLDER
    mkdir -p "$1"/{a,b}/tmp "$1/state"
    echo "CgroupPlugin=cgroup/v1" >"$1/cgroup.conf" # it is not used, and v1 looks for nothing
    cat >"$1/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(uname -n)(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
SlurmdTimeout=20
ReturnToService=2
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/%n
TmpFS=$1/%n/tmp
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
NodeName=a NodeAddr=10.77.0.2 CPUs=64
NodeName=b NodeAddr=10.77.0.3 CPUs=64
PartitionName=all Nodes=a,b Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=a,b PriorityTier=2
CONF
}

start_slurmd() { # FOLDER HOST
    nsenter --net="/run/netns/$2" unshare --uts sh -c "hostname $2; exec slurmd -D" >>"$1/$2.log" 2>&1 &
}

# Returns once both nodes start tasks that have PMIx.
start_cluster() { # FOLDER
    write_conf "$1"
    export SLURM_CONF=$1/slurm.conf
    head -c 128 /dev/urandom >"$1/key"
    chmod 400 "$1/key"
    munged --foreground --force --key-file="$1/key" --socket="$1/munge" --pid-file="$1/munged.pid" \
        --log-file="$1/munged.log" --seed-file="$1/seed" >"$1/munge.log" 2>&1 &
    until [ -S "$1/munge" ]; do
        kill -0 $! 2>/dev/null || skip "munged does not start here: $(tail -n 1 "$1/munge.log")"
        sleep 0.1
    done
    slurmctld -D >"$1/slurmctld.log" 2>&1 &
    start_slurmd "$1" a
    start_slurmd "$1" b
    disown -a # their end is that of the script
    for _ in $(seq 300); do
        [ "$(sinfo --noheader --partition=all --states=idle --format=%D 2>/dev/null)" != 2 ] || break
        sleep 0.1
    done
    timeout 60 srun --nodes=2 --immediate=30 --mpi=pmix true 2>"$1/srun.log" ||
        skip "Slurm starts no tasks here: $(tail -qn 1 "$1"/{slurmctld,a,b,srun}.log | tr '\n' ' ')"
}

# Ends what a step has left: at its end a slurmstepd may wait for ever for a lock within
# PMIx 4.2, and a folder of PMIx keeps the same step from starting again.
end_steps() { # FOLDER
    local left
    for _ in $(seq 200); do
        left=$(ps -eo pid=,comm= | awk '$2 == "slurmstepd" { print $1 }')
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    # shellcheck disable=SC2086
    kill -KILL $left || true
    rm -rf "$1"/{a,b}/tmp/*
}

state_of() { # JOB
    scontrol --oneliner show job "$1" | grep -oE "JobState=[A-Z_]+" | cut -d= -f2
}
