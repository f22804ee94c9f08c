/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/ab/run.h"

static size_t count_lines(const char *text)
{
    size_t lines = 1;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* "key = value" of `section`; the key goes behind what `keys` holds. */
static int take_value(char *line, const char *section, char **keys,
                      xr_setting *out)
{
    char *mark = strstr(line, " = ");
    if (!mark || mark == line || !*section)
        return -1;
    *mark = '\0';
    size_t left = strlen(section);
    size_t right = strlen(line);
    out->key = *keys;
    memcpy(*keys, section, left);
    (*keys)[left] = '.';
    memcpy(*keys + left + 1, line, right + 1);
    *keys += left + right + 2;
    out->value = mark + 3;
    return 0;
}

/* Bytes of all keys with their sections in front. */
static size_t room_for_keys(const char *text)
{
    size_t section = 0;
    size_t room = 1;
    while (*text) {
        size_t n = strcspn(text, "\n");
        section = *text == '[' ? n : section;
        room += section + n + 2;
        text += n + (text[n] == '\n');
    }
    return room;
}

xray_status xr_settings_parse(const char *text, const char *where, xr_err *err,
                              xr_settings *out)
{
    *out = (xr_settings){ .text = xr_strdup(text) };
    out->keys = xr_calloc(room_for_keys(text), 1);
    out->items = xr_calloc(count_lines(text), sizeof(*out->items));
    const char *section = "";
    if (!out->text || !out->keys || !out->items) {
        xr_settings_free(out);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", where);
    }
    char *keys = out->keys;
    char *next = out->text;
    for (size_t number = 1; *next; number++) {
        char *line = next;
        size_t n = strcspn(line, "\n");
        next += n + (line[n] == '\n');
        line[n] = '\0';
        if (!n)
            continue;
        if (line[0] == '[' && line[n - 1] == ']') {
            line[n - 1] = '\0';
            section = line + 1;
        } else if (take_value(line, section, &keys, &out->items[out->count])) {
            xray_status status =
                xr_fail(err, XRAY_E_IO,
                        "%s:%zu: expected \"key = value\" of a resolved INI",
                        where, number);
            xr_settings_free(out);
            return status;
        } else {
            out->count++;
        }
    }
    return XRAY_OK;
}

void xr_settings_free(xr_settings *settings)
{
    free(settings->text);
    free(settings->keys);
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
    return 0;
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
