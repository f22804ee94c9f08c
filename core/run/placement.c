/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes [placement] into the ranks of each role.
 */
#include "core/run/placement.h"

#include <string.h>

#include "core/base/str.h"

int64_t xr_ranks_find(const xr_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->count; i++)
        if (ranks->rank[i] == rank)
            return i;
    return -1;
}

int xr_ranks_equal(const xr_ranks *a, const xr_ranks *b)
{
    return a->count == b->count &&
           memcmp(a->rank, b->rank, a->count * sizeof(a->rank[0])) == 0;
}

static void set_all_ranks(uint32_t size, xr_ranks *out)
{
    out->count = size;
    for (uint32_t i = 0; i < size; i++)
        out->rank[i] = i;
}

/* Appends "3" or "0-2", which must be above the ranks already listed. Returns
 * the fault, or NULL. */
static const char *add_rank_range(const char *text, uint32_t size,
                                  xr_ranks *out)
{
    char first_text[24] = "";
    int64_t first = 0;
    int64_t last = 0;
    size_t length = strcspn(text, "-");
    if (length == 0 || length >= sizeof(first_text))
        return "is not a number, a range such as 0-3, or all";
    memcpy(first_text, text, length);
    if (xr_parse_int(first_text, &first) != 0 ||
        xr_parse_int(text[length] ? text + length + 1 : first_text, &last) != 0)
        return "is not a number, a range such as 0-3, or all";
    if (last < first)
        return "is a range that ends below its start";
    if (first < 0 || last >= (int64_t)size)
        return "is not among the ranks of the run";
    if (out->count && first <= (int64_t)out->rank[out->count - 1])
        return "is not above the ranks before it";
    for (int64_t r = first; r <= last; r++)
        out->rank[out->count++] = (uint32_t)r;
    return NULL;
}

static void read_role_ranks(const xr_config *config, const char *key,
                            const xray_list *list, uint32_t size, xr_ranks *out,
                            xr_errors *errors)
{
    const char *wrong = NULL;
    out->count = 0;
    if (list->count == 1 && strcmp(list->items[0], "all") == 0) {
        set_all_ranks(size, out);
        return;
    }
    for (uint64_t i = 0; i < list->count && !wrong; i++) {
        wrong = add_rank_range(list->items[i], size, out);
        if (wrong)
            xr_errors_add(errors,
                          "%s: [placement] %s: \"%s\" %s; [run] ranks is %u",
                          xr_config_location(config, "placement", key), key,
                          list->items[i], wrong, size);
    }
    if (wrong)
        set_all_ranks(size, out);
}

void xr_placement_read(const xr_config *config, const xr_run_config *ini,
                       xr_placement *out, xr_errors *errors)
{
    const xr_placement_section *p = &ini->placement;
    uint32_t size = (uint32_t)ini->run.ranks;
    *out = (xr_placement){ .size = size, .most_here = size };
    read_role_ranks(config, "actor", &p->actor, size, &out->actor, errors);
    if (!out->actor.count)
        set_all_ranks(size, &out->actor);
    const struct {
        const char *key;
        const xray_list *list;
        xr_ranks *to;
    } others[] = {
        { "reference", &p->reference, &out->reference },
        { "critic", &p->critic, &out->critic },
        { "reward", &p->reward, &out->reward },
        { "rollout", &p->rollout, &out->rollout },
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        read_role_ranks(config, others[i].key, others[i].list, size,
                        others[i].to, errors);
        if (!others[i].to->count)
            *others[i].to = out->actor;
    }
}
