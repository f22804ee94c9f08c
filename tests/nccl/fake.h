/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the fake NCCL and CUDA driver for tests, in addition to
 * those of the real libraries.
 */
#ifndef TEST_NCCL_FAKE_H
#define TEST_NCCL_FAKE_H

#include <stddef.h>

/* Streams that run their work in order, each on a thread of its own. */
void *fake_stream_create(void);
void fake_stream_destroy(void *stream);
/* Runs fn(copy of arg) in the stream's order; the argument has at most FAKE_ARG
 * bytes. */
#define FAKE_ARG 256
void fake_stream_call(void *stream, void (*fn)(void *arg), const void *arg,
                      size_t bytes);
void fake_stream_sync(void *stream);

/* Sets what fails from now on and with which code; 0: nothing. */
#define FAKE_INIT 0    /* ncclCommInitRankConfig */
#define FAKE_ASYNC 1   /* ncclCommGetAsyncError of communicators in use */
#define FAKE_CALL 2    /* ncclBroadcast */
#define FAKE_EVENT 3   /* cuEventQuery */
#define FAKE_DEVICE 4  /* cuInit */
#define FAKE_VERSION 5 /* ncclGetVersion returns this number */
#define FAKE_BUS 6     /* 1: all devices have the same address */
#define FAKE_ABSENT 7  /* 1: this rank never arrives at a new communicator */
#define FAKE_SEND 8    /* ncclSend */
#define FAKE_SLOW 9    /* looks for which an operation is in progress */
#define FAKE_STUCK                                                            \
    10                 /* 1: operations do not return before they are aborted \
                        */
#define FAKE_LONG 11   /* ms that an operation takes to return */
#define FAKE_QUEUE 12  /* work that a stream holds; who adds to it waits */
#define FAKE_RECORD 13 /* cuEventRecord */
#define FAKE_WAIT 14   /* cuStreamWaitEvent */
#define FAKE_UNIQUE 15 /* ncclGetUniqueId */
#define FAKE_KINDS 16
void fake_fail(int kind, int code);
/* From now on a query fails for events that were recorded on this stream. */
void fake_stream_fail(void *stream, int code);
/* Number of calls of ncclCommGetAsyncError. */
unsigned fake_asked(void);
/* Number of communicators that were aborted, of those in which a thread was at
 * that time, and of those that exist. A second thread in a communicator for
 * anything else ends the process. */
unsigned fake_aborted(void);
unsigned fake_interrupted(void);
unsigned fake_live(void);
int fake_contexts(void); /* number of retained device contexts */

#endif
