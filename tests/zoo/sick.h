/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a plugin that wraps working ones and fails in the way that the
 * environment variable SICK names, at call SICK_AT of the callback (at every
 * call if that is not set).
 */
#ifndef ZOO_SICK_H
#define ZOO_SICK_H

#include <xray/algo.h>
#include <xray/device.h>
#include <xray/infer.h>
#include <xray/plugin.h>
#include <xray/reward.h>
#include <xray/services.h>
#include <xray/train.h>

/* True if SICK is `fault` and the call of SICK_AT is reached; counts the
 * calls. */
int sick_now(const char *fault);
int sick_is(const char *fault);

/* Damages a table of weights if SICK is `who`-table-...; `tensor` is memory for
 * a wrong tensor. */
void sick_table(const char *who, xray_weights *table, xray_tensor *tensor);

/* Signals a test by creating the file $SICK_FLAG, and waits for the file
 * $SICK_FLAG.go; only once, however many processes there are. */
void sick_wait(void);

/* A call that takes very long but asks whether it shall end, if SICK is
 * `fault`: creates the file $SICK_FLAG, and $SICK_FLAG.canceled once the host
 * stops it. Only one process does so. */
xray_status sick_hold(const xray_host *host, const char *fault);

/* Loads the component of a plugin from $XRAY_BUILD/plugins. */
int sick_wrapped(const char *file, xray_component *out);

/* Components that wrap others under the name "sick". */
const xray_component *sick_train(void);
const xray_component *sick_infer(void);
const xray_component *sick_reward(void);
const xray_component *sick_algo(void);
const xray_component *sick_device(void);

#endif
