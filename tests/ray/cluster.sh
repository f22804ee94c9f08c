#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The launcher of runtime-ray on a cluster of two nodes, both of them this host.
. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/lib.sh"
ray_needed
trap 'ray_down; rm -rf "$work"' EXIT
ray_up
"$XRAY_BUILD/tests/test-ray-cluster" "$ray_python" "$ray_address" "$ray_second" "$work"
