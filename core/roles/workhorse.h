/* SPDX-License-Identifier: Apache-2.0
 *
 * The Workhorse: an actor that holds one device and the shards of the models
 * placed on its rank.
 */
#ifndef XR_WORKHORSE_H
#define XR_WORKHORSE_H

#include "core/actor/actor.h"

/* Its `create` receives a line "WITH FOLDERS" (the run's XR_WITH_*, and the
 * folders of its plugins, possibly empty) followed by the text of an INI.
 * Methods:
 *
 *   forward   "u m ->"         role, batch (core/roles/wire.h)
 *   gradients "u m -> s"       role, batch with loss and context -> a value
 *                              that is not finite, or ""
 *   step      "u d d -> d u U s"  role, lr, max_norm -> gradient norm, skipped,
 *                              version, first bad tensor
 *   discard   "u ->"           discards the gradients of the role
 *   generate  "m ->"           prompts, and memory for samples
 *   publish   "-> U"           the engine takes the trainer's weights
 *   ship_bytes "-> U"          bytes of its section of a region for the weights
 *   ship      "m U U ->"       writes the section for engines of other ranks,
 * at an offset and of a size ship_along "->"            called on the trainer's
 * other ranks meanwhile receive   "m U ->"         the engine takes weights
 * from a region, of which the bytes are in use save load "u s ->"         role,
 * folder memory    "-> s"           a line on the memory of the device
 *
 * In a replica of several ranks all get the same calls and the same regions,
 * and only the rank that answers writes results to them
 * (core/run/replicas.h).
 *
 * XRAY_E_NUMERIC from generate: a log-prob is not finite. */
extern const xr_actor_class xr_workhorse_class;

/* Arguments that start the program as a Workhorse: "PROGRAM
 * XR_WORKHORSE_COMMAND RUNTIME FOLDERS ADDRESS", with the name of the runtime,
 * the folders of its plugin, and its address. */
#define XR_WORKHORSE_COMMAND "workhorse"
#define XR_WORKHORSE_LOCAL "local"

#endif
