/* SPDX-License-Identifier: Apache-2.0
 *
 * The Workhorse: an actor that holds one device and the shards of the models
 * placed on its rank.
 */
#ifndef XR_WORKHORSE_H
#define XR_WORKHORSE_H

#include "core/actor/actor.h"

/* Its `create` receives a line "WITH FOLDERS" (the run's XR_WITH_*, and the
 * folders of its plugins, possibly empty), one with the working directory and,
 * with XR_IN_WORKHORSE, one with the hosts of all ranks, followed by the text
 * of an INI.
 * Methods:
 *
 *   forward     role, batch (core/roles/wire.h) -> results
 *   gradients   role, batch with loss and context -> results, a value that is
 *               not finite, or ""
 *   step        role, lr, max_norm -> gradient norm, skipped, version,
 *               first bad tensor
 *   discard     role: discards its gradients
 *   generate    prompts, and memory for samples -> results
 *   publish     the engine takes the trainer's weights -> bytes received
 *   ship_bytes  -> bytes of its section of a region for the weights
 *   ship        region, offset, size: writes the section for engines of
 *               other ranks -> results
 *   ship_along  is called on the trainer's other ranks meanwhile
 *   receive     region, bytes in use: the engine takes its weights
 *               -> bytes received
 *   save, load  role, folder
 *   memory      -> a line on the memory of the device
 *   metrics     -> those of its plugins
 *
 * Results are the region of the call again, in which the Workhorse has written;
 * none from a rank that did not.
 *
 * In a replica of several ranks all get the same calls and the same regions,
 * and only the rank that answers writes results to them
 * (core/run/replicas.h).
 *
 * XRAY_E_NUMERIC from generate: a log-prob is not finite. */
extern const xr_actor_class xr_workhorse_class;

/* Arguments that start the program as a Workhorse: "PROGRAM
 * XR_WORKHORSE_COMMAND RUNTIME FOLDERS ADDRESS", with the name of the runtime,
 * the folders of its plugin, and its address, or those of a launcher that must
 * be asked what the process is; or, with the runtime of several hosts, "PROGRAM
 * XR_WORKHORSE_COMMAND ADDRESS". */
#define XR_WORKHORSE_COMMAND "workhorse"
#define XR_WORKHORSE_LOCAL "local"

#endif
