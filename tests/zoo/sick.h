/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that wraps working ones of ours and falls ill in the way that the
 * environment variable SICK names, at call SICK_AT of the callback (every call
 * if that is not set).
 */
#ifndef ZOO_SICK_H
#define ZOO_SICK_H

#include <xray/algo.h>
#include <xray/device.h>
#include <xray/infer.h>
#include <xray/plugin.h>
#include <xray/reward.h>
#include <xray/train.h>

/* True if SICK is `fault` and it is time; counts the calls. */
int sick_now(const char *fault);
int sick_is(const char *fault);

/* A table of weights that falls ill where SICK is `who`-table-...; `tensor` is
 * room for one that is wrong. */
void sick_table(const char *who, xray_weights *table, xray_tensor *tensor);

/* Tells a test where the process is, by making the file $SICK_FLAG, and waits
 * for the file $SICK_FLAG.go; once only, whatever processes there are. */
void sick_wait(void);

/* The component of a plugin of ours, built in $XRAY_BUILD/plugins. */
int sick_wrapped(const char *file, xray_component *out);

/* Components made of the wrapped ones, under the name "sick". */
const xray_component *sick_train(void);
const xray_component *sick_infer(void);
const xray_component *sick_reward(void);
const xray_component *sick_algo(void);
const xray_component *sick_device(void);

#endif
