/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the working memory of encode calls. A tokenizer holds the workspaces of
 * finished calls, so that the next call starts with their memory and their
 * cache of words.
 */
#include <stdlib.h>

#include "model/text/internal.h"
#include "model/text/word_cache.h"

void xm_workspace_free(xm_workspace *workspace)
{
    if (!workspace)
        return;
    xm_regex_workspace_free(workspace->regex);
    for (size_t i = 0; i < 2; i++)
        xm_text_free(&workspace->norm[i]);
    for (size_t i = 0; i < XM_STEPS; i++)
        xm_text_free(&workspace->pre[i]);
    xr_str_free(&workspace->scratch);
    free(workspace->symbols);
    free(workspace->heap);
    free(workspace->nodes);
    free(workspace->cache);
    free(workspace);
}

xm_workspace *xm_workspace_take(const xm_tokenizer *tok)
{
    for (size_t i = 0; i < XM_WORKSPACES; i++) {
        xm_workspace *workspace = atomic_exchange(&tok->workspaces[i], NULL);
        if (workspace)
            return workspace;
    }
    xm_workspace *workspace = xr_calloc(1, sizeof *workspace);
    if (!workspace)
        return NULL;
    workspace->regex = xm_regex_workspace();
    workspace->cache = xr_calloc(XM_CACHE_SLOTS, sizeof *workspace->cache);
    if (!workspace->regex || !workspace->cache) {
        xm_workspace_free(workspace);
        return NULL;
    }
    return workspace;
}

void xm_workspace_give(const xm_tokenizer *tok, xm_workspace *workspace)
{
    for (size_t i = 0; workspace && i < XM_WORKSPACES; i++) {
        xm_workspace *none = NULL;
        if (atomic_compare_exchange_strong(&tok->workspaces[i], &none,
                                           workspace))
            return;
    }
    xm_workspace_free(workspace);
}

int xm_grow_buffer(void **buffer, size_t *cap, size_t count, size_t element)
{
    if (count <= *cap)
        return 0;
    size_t more = count + count / 2 + 64;
    void *grown =
        more <= SIZE_MAX / element ? realloc(*buffer, more * element) : NULL;
    if (!grown)
        return -1;
    *buffer = grown;
    *cap = more;
    return 0;
}
