/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a resolved INI into keys and values, and finds those that differ.
 */
#include <stdlib.h>
#include <string.h>

#include "core/ab/run_folder.h"
#include "core/config/config.h"

/* Appends "actor.optim.lr" and the value as printed for each setting, every
 * string with its NUL; returns the number of settings. */
static size_t append_config_values(const xr_config *config, xr_str *out)
{
    size_t at[2] = { 0, 0 };
    size_t count = 0;
    xr_config_value value;
    for (; xr_config_next(config, at, &value); count++) {
        xr_str_printf(out, "%s.%s", value.section, value.key);
        xr_str_append(out, "", 1);
        xr_config_put_value(value.text, out);
        xr_str_append(out, "", 1);
    }
    return count;
}

static xray_status split_config_values(xr_str *text, size_t count,
                                       xr_settings *out)
{
    out->items = xr_calloc(count + 1, sizeof(*out->items));
    if (text->failed || !out->items)
        return XRAY_E_NOMEM;
    out->text = text->data;
    text->data = NULL;
    for (char *at = out->text; out->count < count; out->count++) {
        char *value = at + strlen(at) + 1;
        out->items[out->count] = (xr_setting){ at, value };
        at = value + strlen(value) + 1;
    }
    return XRAY_OK;
}

xray_status xr_settings_parse(const char *text, const char *where, xr_err *err,
                              xr_settings *out)
{
    xr_errors errors = { 0 };
    xr_str values = { 0 };
    xray_status status = XRAY_E_NOMEM;
    xr_config *config = xr_config_new();
    *out = (xr_settings){ .count = 0 };
    if (config)
        xr_config_read_text(config, where, text, &errors);
    if (errors.count) {
        status = xr_fail(err, XRAY_E_IO, "%s", errors.items[0]);
    } else {
        if (config && !xr_config_failed(config))
            status = split_config_values(
                &values, append_config_values(config, &values), out);
        if (status != XRAY_OK)
            (void)xr_fail(err, status, "out of memory for %s", where);
    }
    if (status != XRAY_OK)
        xr_settings_free(out);
    xr_str_free(&values);
    xr_errors_free(&errors);
    xr_config_free(config);
    return status;
}

void xr_settings_free(xr_settings *settings)
{
    free(settings->text);
    free(settings->items);
    *settings = (xr_settings){ .count = 0 };
}

const char *xr_settings_get(const xr_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return settings->items[i].value;
    return NULL;
}

int xr_setting_is_own(const char *key)
{
    static const char *const own[] = { "run.seed",
                                       "run.threads",
                                       "run.log",
                                       "trainer.default_local_dir",
                                       "trainer.rollout_data_dir",
                                       "trainer.validation_data_dir",
                                       "trainer.resume_mode",
                                       "trainer.resume_from_path",
                                       "trainer.logger",
                                       "trainer.project_name",
                                       "trainer.experiment_name" };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcmp(key, own[i]) == 0)
            return 1;
    return strncmp(key, "tracker.", strlen("tracker.")) == 0;
}

const char *xr_settings_differ(const xr_settings *a, const xr_settings *b,
                               const char **out_a, const char **out_b)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *key = a->items[i].key;
        *out_a = a->items[i].value;
        *out_b = xr_settings_get(b, key);
        if (!xr_setting_is_own(key) && (!*out_b || strcmp(*out_a, *out_b) != 0))
            return key;
    }
    for (size_t i = 0; i < b->count; i++) {
        const char *key = b->items[i].key;
        *out_a = NULL;
        *out_b = b->items[i].value;
        if (!xr_setting_is_own(key) && !xr_settings_get(a, key))
            return key;
    }
    return NULL;
}
