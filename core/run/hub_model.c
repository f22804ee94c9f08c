/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on models that the configuration names by their id of the Hugging
 * Face hub: that one is not in the cache, or that its download did not finish.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hub.h"
#include "core/base/json.h"
#include "core/run/run_setup.h"

void xr_run_report_no_folder(const xr_run *run, const char *section,
                             const char *key, const char *dir,
                             xr_errors *errors)
{
    const char *text = xr_config_get(run->config, section, key);
    char found[XR_PATH_CAP];
    xr_err err = { "" };
    /* A name without '/' is rather a folder that does not exist. */
    int is_id = text && strchr(text, '/') && xr_hub_is_id(text) &&
                xr_hub_find(text, found, sizeof found, &err) != XRAY_OK;
    xr_errors_add(errors, "%s: [%s] %s: %s is not a folder%s%s",
                  xr_config_location(run->config, section, key), section, key,
                  dir, is_id ? ", and " : "", is_id ? err.text : "");
}

/* Returns the first file that an index of weights names and the folder lacks;
 * NULL if there is none. */
static const char *find_missing_shard(const char *dir, const cJSON *index)
{
    const cJSON *item;
    cJSON_ArrayForEach(item,
                       cJSON_GetObjectItemCaseSensitive(index, "weight_map"))
    {
        char path[XR_PATH_CAP];
        if (cJSON_IsString(item) &&
            xr_path_join(dir, item->valuestring, path, sizeof path, NULL) ==
                XRAY_OK &&
            !xr_path_exists(path))
            return item->valuestring;
    }
    return NULL;
}

void xr_run_check_snapshot(const xr_run *run, const char *section,
                           const char *key, const char *dir, xr_errors *errors)
{
    char path[XR_PATH_CAP];
    char line[XR_PATH_CAP];
    cJSON *index = NULL;
    if (!xr_hub_download(dir, line, sizeof line) ||
        xr_path_join(dir, "model.safetensors", path, sizeof path, NULL) !=
            XRAY_OK ||
        xr_path_exists(path) ||
        xr_path_join(dir, "model.safetensors.index.json", path, sizeof path,
                     NULL) != XRAY_OK ||
        xr_json_file(path, NULL, &index) != XRAY_OK)
        return;
    const char *missing = find_missing_shard(dir, index);
    if (missing)
        xr_errors_add(errors,
                      "%s: [%s] %s: %s lacks %s: its download did not finish; "
                      "%s completes it",
                      xr_config_location(run->config, section, key), section,
                      key, dir, missing, line);
    cJSON_Delete(index);
}

void xr_run_say_found(const xr_run *run)
{
    for (size_t i = 0; xr_config_found(run->config, i); i++)
        (void)fprintf(stderr, "xray: %s\n", xr_config_found(run->config, i));
}
