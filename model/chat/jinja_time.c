/* SPDX-License-Identifier: Apache-2.0
 *
 * strftime in the "C" locale and UTC.
 */
#include <string.h>

#include "model/chat/jinja.h"

static const char *const day_names[] = { "Sunday",    "Monday",   "Tuesday",
                                         "Wednesday", "Thursday", "Friday",
                                         "Saturday" };
static const char *const month_names[] = { "January", "February", "March",
                                           "April",   "May",      "June",
                                           "July",    "August",   "September",
                                           "October", "November", "December" };

struct date {
    int64_t stamp;
    int64_t year;
    int month; /* from 1 */
    int day;
    int hour;
    int minute;
    int second;
    int weekday; /* 0: Sunday */
    int yearday; /* from 1 */
};

static int leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* The calendar counts from March in eras of 400 years. */
static void date_of(int64_t stamp, struct date *out)
{
    int64_t days = stamp / 86400;
    int64_t rest = stamp % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t of_era = shifted - era * 146097;
    int64_t year =
        (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153;
    out->stamp = stamp;
    out->day = (int)(of_year - (153 * month + 2) / 5 + 1);
    out->month = (int)(month < 10 ? month + 3 : month - 9);
    out->year = year + era * 400 + (out->month <= 2);
    out->hour = (int)(rest / 3600);
    out->minute = (int)(rest / 60 % 60);
    out->second = (int)(rest % 60);
    out->weekday = (int)(((days + 4) % 7 + 7) % 7);
    static const int before[] = { 0,   31,  59,  90,  120, 151,
                                  181, 212, 243, 273, 304, 334 };
    out->yearday =
        before[out->month - 1] + out->day + (out->month > 2 && leap(out->year));
}

/* `flag` of glibc: '-' no padding, '_' spaces, '0' zeros. */
static void number(xr_str *out, int64_t value, int width, char flag, char pad)
{
    if (flag == '-')
        xr_str_printf(out, "%lld", (long long)value);
    else if (flag == '_' || (flag != '0' && pad == ' '))
        xr_str_printf(out, "%*lld", width, (long long)value);
    else
        xr_str_printf(out, "%0*lld", width, (long long)value);
}

static int iso_weeks(int64_t year)
{
    int64_t last = year - 1;
    int64_t first_day = (year + year / 4 - year / 100 + year / 400) % 7;
    int64_t before = (last + last / 4 - last / 100 + last / 400) % 7;
    return first_day == 4 || before == 3 ? 53 : 52;
}

/* Week and year of ISO 8601. */
static int iso_week(const struct date *d, int64_t *year)
{
    int weekday = d->weekday ? d->weekday : 7;
    int week = (d->yearday - weekday + 10) / 7;
    *year = d->year;
    if (week < 1) {
        (*year)--;
        return iso_weeks(*year);
    }
    if (week > iso_weeks(d->year)) {
        (*year)++;
        return 1;
    }
    return week;
}

static void field(xr_str *out, const struct date *d, char what, char flag);

static void composed(xr_str *out, const struct date *d, const char *format)
{
    for (; *format; format++) {
        if (*format == '%')
            field(out, d, *++format, 0);
        else
            xr_str_append(out, format, 1);
    }
}

static int week_field(xr_str *out, const struct date *d, char what, char flag)
{
    int64_t year;
    int week = iso_week(d, &year);
    int monday = (d->weekday + 6) % 7;
    switch (what) {
    case 'U':
        number(out, (d->yearday + 6 - d->weekday) / 7, 2, flag, '0');
        return 1;
    case 'W':
        number(out, (d->yearday + 6 - monday) / 7, 2, flag, '0');
        return 1;
    case 'V':
        number(out, week, 2, flag, '0');
        return 1;
    case 'G':
        number(out, year, 4, flag, '0');
        return 1;
    case 'g':
        number(out, year % 100, 2, flag, '0');
        return 1;
    case 'u':
        number(out, d->weekday ? d->weekday : 7, 1, flag, '0');
        return 1;
    case 'w':
        number(out, d->weekday, 1, flag, '0');
        return 1;
    default:
        return 0;
    }
}

static int text_field(xr_str *out, const struct date *d, char what)
{
    const char *day = day_names[d->weekday];
    const char *month = month_names[d->month - 1];
    switch (what) {
    case 'a':
        xr_str_append(out, day, 3);
        return 1;
    case 'A':
        xr_str_puts(out, day);
        return 1;
    case 'b':
    case 'h':
        xr_str_append(out, month, 3);
        return 1;
    case 'B':
        xr_str_puts(out, month);
        return 1;
    case 'p':
        xr_str_puts(out, d->hour < 12 ? "AM" : "PM");
        return 1;
    case 'P':
        xr_str_puts(out, d->hour < 12 ? "am" : "pm");
        return 1;
    case 'c':
        composed(out, d, "%a %b %e %H:%M:%S %Y");
        return 1;
    case 'x':
    case 'D':
        composed(out, d, "%m/%d/%y");
        return 1;
    case 'X':
    case 'T':
        composed(out, d, "%H:%M:%S");
        return 1;
    case 'F':
        composed(out, d, "%Y-%m-%d");
        return 1;
    case 'R':
        composed(out, d, "%H:%M");
        return 1;
    case 'r':
        composed(out, d, "%I:%M:%S %p");
        return 1;
    case 'n':
        xr_str_puts(out, "\n");
        return 1;
    case 't':
        xr_str_puts(out, "\t");
        return 1;
    case 'f':
        xr_str_puts(out, "000000");
        return 1;
    case '%':
        xr_str_puts(out, "%");
        return 1;
    default:
        /* A naive datetime has no zone. */
        return what == 'Z' || what == 'z';
    }
}

static void field(xr_str *out, const struct date *d, char what, char flag)
{
    int hour = d->hour % 12 ? d->hour % 12 : 12;
    if (text_field(out, d, what) || week_field(out, d, what, flag))
        return;
    switch (what) {
    case 'Y':
        number(out, d->year, 1, flag, '0');
        return;
    case 'C':
        number(out, d->year / 100, 2, flag, '0');
        return;
    case 'y':
        number(out, d->year % 100, 2, flag, '0');
        return;
    case 'm':
        number(out, d->month, 2, flag, '0');
        return;
    case 'd':
        number(out, d->day, 2, flag, '0');
        return;
    case 'e':
        number(out, d->day, 2, flag, ' ');
        return;
    case 'H':
        number(out, d->hour, 2, flag, '0');
        return;
    case 'k':
        number(out, d->hour, 2, flag, ' ');
        return;
    case 'I':
        number(out, hour, 2, flag, '0');
        return;
    case 'l':
        number(out, hour, 2, flag, ' ');
        return;
    case 'j':
        number(out, d->yearday, 3, flag, '0');
        return;
    case 'M':
        number(out, d->minute, 2, flag, '0');
        return;
    case 'S':
        number(out, d->second, 2, flag, '0');
        return;
    case 's':
        number(out, d->stamp, 1, flag, '0');
        return;
    default:
        xr_str_puts(out, "%");
        if (flag)
            xr_str_append(out, &flag, 1);
        xr_str_append(out, &what, 1);
    }
}

int xm_jstrftime(xm_jrun *run, const xm_jstr *format, xm_jv *out)
{
    struct date date;
    xr_str text = { 0 };
    const char *end = format->text + format->size;
    if (run->now < -62135596800 || run->now > 253402300799)
        return xm_jfail(run, "strftime_now: the year is not in 1..9999");
    if (xm_jwork(run, format->size))
        return -1;
    date_of(run->now, &date);
    for (const char *at = format->text; at < end; at++) {
        if (*at != '%' || at + 1 == end) {
            xr_str_append(&text, at, 1);
            continue;
        }
        char flag = 0;
        at++;
        if (at + 1 < end && (*at == '-' || *at == '_' || *at == '0'))
            flag = *at++;
        field(&text, &date, *at, flag);
    }
    return xm_jtext(run, &text, out);
}
