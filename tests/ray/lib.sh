# SPDX-License-Identifier: Apache-2.0
#
# Shared by the tests that need Ray: starts a cluster of this machine alone, with a
# folder and ports of its own, and ends it. Sourced after $work exists.

ray_python=${XRAY_RAY_PYTHON:-python3}

ray_skip() {
    echo "skipped: $*"
    exit 77
}

# Everything that belongs to this test has this in its environment.
ray_mark=XRAY_RAY_TEST=$$
export RAY_AUTH_MODE=disabled # whatever token the user has
export RAY_memory_monitor_refresh_ms=0 # what else fills the machine's memory is no node's fault
export RAY_gcs_rpc_server_reconnect_timeout_s=15 # until a head is given up; else a minute
ray_needed() {
    "$ray_python" -c 'import ray' 2>/dev/null || ray_skip "$ray_python has no package ray"
    ray_program=$("$ray_python" -c 'import os, sys; print(os.path.join(os.path.dirname(sys.executable), "ray"))')
    [ -x "$ray_program" ] || ray_skip "there is no program ray beside $ray_python"
}

# Not one of those that the system gives out, since a process of Ray itself may have it a
# moment later; and Ray refuses 10002 to 19999 for a head.
ray_free_port() {
    "$ray_python" -c 'import random, socket
while True:
    port = random.randrange(20000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("", port))
            break
        except OSError:
            pass
print(port)'
}

# Processes of this test, but for this shell and its children that are no part of Ray.
ray_processes() {
    grep -lsaz "^$ray_mark\$" /proc/[0-9]*/environ | sed 's/[^0-9]//g' | grep -vx "$$" || true
}

# ray_node ARG...: starts raylet and, with --head, the rest. What `ray_on` names does it
# elsewhere.
ray_node() {
    ${ray_on:-} env "$ray_mark" RAY_health_check_initial_delay_ms=0 RAY_health_check_period_ms=1000 \
        RAY_TMPDIR="$ray_tmp" RAY_raylet_start_wait_time_s=120 RAY_worker_niceness=0 \
        "$ray_program" start --disable-usage-stats --object-store-memory=80000000 "$@" >"$work/ray.out" 2>&1 ||
        fail "ray start $*: $(tail -n 5 "$work/ray.out")"
}

# Two nodes of two cores and, in words, a GPU each.
ray_up() { # [ARG of the head...]
    ray_tmp=$(mktemp -d /tmp/xray-ray-XXXXXX) # short: sockets have names of up to 107 bytes
    local port
    port=$(ray_free_port)
    ray_node --head --port="$port" --num-cpus=2 --num-gpus=1 --temp-dir="$ray_tmp" "${@:---include-dashboard=false}"
    ray_address=$(sed -nE "s/.*--address='([^']*)'.*/\1/p" "$work/ray.out" | head -n 1)
    [ -n "$ray_address" ] || fail "ray start tells no address: $(cat "$work/ray.out")"
    ray_first=$(ray_raylets)
    ray_node --address="$ray_address" --num-cpus=2 --num-gpus=1
    ray_second=$(ray_raylets | grep -vxF "$ray_first")
}

ray_named() { # NAME: processes of the cluster that are this program
    local pid
    for pid in $(ray_processes); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$1" ] || echo "$pid"
    done
}
ray_raylets() { ray_named raylet; }

ray_down() {
    local left
    for _ in $(seq 50); do
        left=$(ray_processes)
        [ -n "$left" ] || break
        # shellcheck disable=SC2086
        kill -KILL $left 2>/dev/null || true
        sleep 0.1
    done
    rm -rf "${ray_tmp:-$work/none}"
}

# ---- runs in the background; `ray` holds their settings, no_horses is the script's ----

# begin NAME [--set ...]: a run, up to its second checkpoint, by what `ray_driver` says.
begin() {
    ${ray_driver:-} "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/$1" "${ray[@]}" "${@:2}" \
        >"$work/out" 2>"$work/err" &
    pid=$!
    until [ -d "$work/$1/global_step_2" ]; do
        kill -0 "$pid" 2>/dev/null || fail "$1 ended early: $(cat "$work/err")"
        sleep 0.01
    done
}

ends() { # NAME CODE SENTENCE
    local code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    [ "$code" = "$2" ] || fail "$1 ended with $code: $(cat "$work/err")"
    grep -Eq "$3" "$work/err" || fail "$1: expected $3; got: $(cat "$work/err")"
    ! grep -q Traceback "$work/err" || fail "$1: $(cat "$work/err")"
    no_horses "$1"
}
