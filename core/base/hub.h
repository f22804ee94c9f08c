/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds models in the local cache of the Hugging Face hub. Nothing is
 * downloaded: a model that is not there is an error with the command that
 * fetches it.
 */
#ifndef XR_HUB_H
#define XR_HUB_H

#include <stddef.h>

#include "core/base/err.h"

/* 1 if the text has the form of a model's id: NAME or ORG/NAME, and @REVISION
 * (a branch, a tag, or the 40 digits of a commit) after it or not. */
int xr_hub_is_id(const char *text);

/* Writes the folder of the id's snapshot to `buffer`. Without a revision it is
 * that of the branch main. The cache is HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, the first that
 * the environment gives. XRAY_E_IO if the cache has no such snapshot: the
 * sentence says where it was looked for and how it is fetched. */
xray_status xr_hub_find(const char *id, char *buffer, size_t cap, xr_err *err);

/* If the folder is a snapshot of a hub's cache, writes the command that
 * completes its download to `buffer` and returns 1. */
int xr_hub_download(const char *dir, char *buffer, size_t cap);

#endif
