/* SPDX-License-Identifier: Apache-2.0
 *
 * The Workhorse: an actor that holds one device and the shards of the models
 * placed on its rank.
 */
#ifndef XR_WORKHORSE_H
#define XR_WORKHORSE_H

#include "core/actor/actor.h"

/* Its create is given a line "WITH FOLDERS", the run's XR_WITH_* and the
 * folders of its plugins, which may be none, and after it the text of an INI.
 * Methods:
 *
 *   forward   "u m ->"         role, batch (core/roles/wire.h)
 *   gradients "u m ->"         role, batch with loss and context
 *   step      "u d d -> d u U s"  role, lr, max_norm -> gradient norm, skipped,
 *                              version, first bad tensor
 *   discard   "u ->"           gradients of the role
 *   generate  "m ->"           prompts and room for samples
 *   publish   "-> U"           the engine takes the trainer's weights
 *   ship_bytes "-> U"          that the weights take
 *   ship      "m ->"           the weights, for engines of other ranks; the
 *   ship_along "->"            other ranks of the trainer call this meanwhile
 *   receive   "m ->"           the engine takes them
 *   save load "u s ->"         role, folder
 *   memory    "-> s"           a line on what the device holds
 *
 * XRAY_E_NUMERIC of generate: a log-prob that is not finite. */
extern const xr_actor_class xr_workhorse_class;

/* What the program is told to be one: "PROGRAM XR_WORKHORSE_COMMAND RUNTIME
 * FOLDERS ADDRESS", with the runtime's name, its plugin's folders and where it
 * is. */
#define XR_WORKHORSE_COMMAND "workhorse"
#define XR_WORKHORSE_LOCAL "local"

#endif
