/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses keys that neither the chosen grader nor its base reads, and values
 * that they cannot work with.
 */
#include "plugins/reward-rule/check.h"

#include <string.h>

#include "core/base/str.h"

int rule_uses_key(const char *keys, const char *key)
{
    size_t size = strlen(key);
    for (const char *at = keys; *at;) {
        size_t length = strcspn(at, " ");
        if (length == size && memcmp(at, key, size) == 0)
            return 1;
        at += length;
        at += strspn(at, " ");
    }
    return 0;
}

static int choice_is_preset(const xray_option *option, int64_t value)
{
    const xray_choice *c = option->choices;
    while (c->name && strcmp(c->name, option->preset) != 0)
        c++;
    return c->name && c->value == value;
}

static int value_is_preset(const xray_option *option, const rule_config *config)
{
    const void *field = (const char *)config + option->offset;
    int64_t integer = 0;
    double real = 0;
    switch (option->type) {
    case XRAY_OPT_CHOICE:
        return choice_is_preset(option, *(const int64_t *)field);
    case XRAY_OPT_BOOL:
        return *(const uint32_t *)field == (*option->preset == 't');
    case XRAY_OPT_INT:
        return xr_parse_int(option->preset, &integer) == 0 &&
               integer == *(const int64_t *)field;
    case XRAY_OPT_REAL:
        return xr_parse_real(option->preset, &real) == 0 &&
               !(real < *(const double *)field) &&
               !(real > *(const double *)field);
    default:
        return strcmp(*(const char *const *)field, option->preset) == 0;
    }
}

/* Writes the names of the graders that use the key, such as "exact, regex",
 * and returns their number. */
static unsigned list_graders_using(const char *key, char *out, size_t cap)
{
    unsigned count = 0;
    size_t size = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < RULE_GRADER_COUNT; i++) {
        const char *name = rule_grader_name(i);
        size_t length = strlen(name);
        if (!rule_uses_key(rule_grader_at(i)->keys, key) ||
            size + length + 3 > cap)
            continue;
        if (count++) {
            memcpy(out + size, ", ", 2);
            size += 2;
        }
        memcpy(out + size, name, length + 1);
        size += length;
    }
    return count;
}

static xray_status refuse_unused_key(const char *key, xr_err *err)
{
    char users[512];
    unsigned count = list_graders_using(key, users, sizeof(users));
    return xr_fail_key(err, XRAY_E_CONFIG, NULL, key,
                       ": only grader = %s %s it; remove the key or set %s",
                       users, count > 1 ? "use" : "uses",
                       count > 1 ? "one of them" : "that grader");
}

static int config_uses_key(const rule_config *config, const char *key)
{
    return strcmp(key, "grader") == 0 ||
           rule_uses_key(rule_grader_at(config->grader)->keys, key) ||
           (config->base != RULE_NO_BASE &&
            rule_uses_key(rule_grader_at(config->base)->keys, key));
}

static xray_status check_values(const rule_grader *grader,
                                const rule_config *config, xr_err *err)
{
    return grader->check ? grader->check(config, err) : XRAY_OK;
}

xray_status rule_check(const rule_config *config, xr_err *err)
{
    const rule_grader *grader = rule_grader_at(config->grader);
    xray_status status = check_values(grader, config, err);
    if (status == XRAY_OK && config->base != RULE_NO_BASE &&
        rule_uses_key(grader->keys, "base"))
        status = check_values(rule_grader_at(config->base), config, err);
    for (uint32_t i = 0; i < rule_option_count && status == XRAY_OK; i++) {
        const char *key = rule_options[i].name;
        if (!config_uses_key(config, key) &&
            !value_is_preset(&rule_options[i], config))
            status = refuse_unused_key(key, err);
    }
    return status;
}
