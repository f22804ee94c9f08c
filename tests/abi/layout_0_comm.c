/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of xray.comm/0 and of xray.cuda/0 on LP64.
 */
#include <xray/comm.h>
#include <xray/cuda.h>

#include "tests/abi/layout.h"

AT(xray_comm_trace, calls, 0);
AT(xray_comm_trace, bytes, 8);
AT(xray_comm_trace, group, 16);
AT(xray_comm_trace, call, 24);
AT(xray_comm_trace, state, 28);
AT(xray_comm_trace, since, 32);
AT(xray_comm_trace, pid, 40);
SIZE(xray_comm_trace, 48);

AT(xray_comm_setup, header, 0);
AT(xray_comm_setup, host, 8);
AT(xray_comm_setup, device, 16);
AT(xray_comm_setup, device_self, 24);
AT(xray_comm_setup, rank, 32);
AT(xray_comm_setup, size, 36);
AT(xray_comm_setup, timeout_ms, 40);
AT(xray_comm_setup, trace, 48);
AT(xray_comm_setup, traces, 56);
AT(xray_comm_setup, trace_stride, 64);
AT(xray_comm_setup, gather_ctx, 72);
AT(xray_comm_setup, gather, 80);
SIZE(xray_comm_setup, 88);

AT(xray_comm_exchange, header, 0);
AT(xray_comm_exchange, in, 8);
AT(xray_comm_exchange, in_bytes, 16);
AT(xray_comm_exchange, out, 24);
AT(xray_comm_exchange, out_bytes, 32);
AT(xray_comm_exchange, to, 40);
AT(xray_comm_exchange, from, 44);
SIZE(xray_comm_exchange, 48);

AT(xray_comm_ops, header, 0);
AT(xray_comm_ops, serves, 8);
AT(xray_comm_ops, create, 16);
AT(xray_comm_ops, destroy, 24);
AT(xray_comm_ops, group, 32);
AT(xray_comm_ops, all_reduce, 40);
AT(xray_comm_ops, all_reduce_max, 48);
AT(xray_comm_ops, reduce_scatter, 56);
AT(xray_comm_ops, all_gather, 64);
AT(xray_comm_ops, broadcast, 72);
AT(xray_comm_ops, send, 80);
AT(xray_comm_ops, recv, 88);
AT(xray_comm_ops, exchange, 96);
AT(xray_comm_ops, all_to_all, 104);
AT(xray_comm_ops, abort, 112);
AT(xray_comm_ops, extension, 120);
AT(xray_comm_ops, spans_hosts, 128);
SIZE(xray_comm_ops, 136);

AT(xray_cuda_ops, header, 0);
AT(xray_cuda_ops, index, 8);
AT(xray_cuda_ops, stream, 16);
SIZE(xray_cuda_ops, 24);
