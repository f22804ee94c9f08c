/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats dates as strftime does in the "C" locale, in UTC.
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

static int is_leap_year(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Converts seconds since 1970 to a date, with years that start in March in eras
 * of 400 years. */
static void compute_date(int64_t stamp, struct date *out)
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
    out->yearday = before[out->month - 1] + out->day +
                   (out->month > 2 && is_leap_year(out->year));
}

/* Writes a number with a flag of glibc: '-' no padding, '_' spaces, '0'
 * zeros. */
static void write_number(xr_str *out, int64_t value, int width, char flag,
                         char pad)
{
    if (flag == '-')
        xr_str_printf(out, "%lld", (long long)value);
    else if (flag == '_' || (flag != '0' && pad == ' '))
        xr_str_printf(out, "%*lld", width, (long long)value);
    else
        xr_str_printf(out, "%0*lld", width, (long long)value);
}

static int count_iso_weeks(int64_t year)
{
    int64_t last = year - 1;
    int64_t first_day = (year + year / 4 - year / 100 + year / 400) % 7;
    int64_t before = (last + last / 4 - last / 100 + last / 400) % 7;
    return first_day == 4 || before == 3 ? 53 : 52;
}

/* Returns the week of ISO 8601 and sets its year. */
static int get_iso_week(const struct date *d, int64_t *year)
{
    int weekday = d->weekday ? d->weekday : 7;
    int week = (d->yearday - weekday + 10) / 7;
    *year = d->year;
    if (week < 1) {
        (*year)--;
        return count_iso_weeks(*year);
    }
    if (week > count_iso_weeks(d->year)) {
        (*year)++;
        return 1;
    }
    return week;
}

static void write_field(xr_str *out, const struct date *d, char what,
                        char flag);

static void write_composed(xr_str *out, const struct date *d,
                           const char *format)
{
    for (; *format; format++) {
        if (*format == '%')
            write_field(out, d, *++format, 0);
        else
            xr_str_append(out, format, 1);
    }
}

static int write_week_field(xr_str *out, const struct date *d, char what,
                            char flag)
{
    int64_t year;
    int week = get_iso_week(d, &year);
    int monday = (d->weekday + 6) % 7;
    switch (what) {
    case 'U':
        write_number(out, (d->yearday + 6 - d->weekday) / 7, 2, flag, '0');
        return 1;
    case 'W':
        write_number(out, (d->yearday + 6 - monday) / 7, 2, flag, '0');
        return 1;
    case 'V':
        write_number(out, week, 2, flag, '0');
        return 1;
    case 'G':
        write_number(out, year, 4, flag, '0');
        return 1;
    case 'g':
        write_number(out, year % 100, 2, flag, '0');
        return 1;
    case 'u':
        write_number(out, d->weekday ? d->weekday : 7, 1, flag, '0');
        return 1;
    case 'w':
        write_number(out, d->weekday, 1, flag, '0');
        return 1;
    default:
        return 0;
    }
}

static int write_text_field(xr_str *out, const struct date *d, char what)
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
        write_composed(out, d, "%a %b %e %H:%M:%S %Y");
        return 1;
    case 'x':
    case 'D':
        write_composed(out, d, "%m/%d/%y");
        return 1;
    case 'X':
    case 'T':
        write_composed(out, d, "%H:%M:%S");
        return 1;
    case 'F':
        write_composed(out, d, "%Y-%m-%d");
        return 1;
    case 'R':
        write_composed(out, d, "%H:%M");
        return 1;
    case 'r':
        write_composed(out, d, "%I:%M:%S %p");
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
        /* These are empty for a naive datetime. */
        return what == 'Z' || what == 'z';
    }
}

static void write_field(xr_str *out, const struct date *d, char what, char flag)
{
    int hour = d->hour % 12 ? d->hour % 12 : 12;
    if (write_text_field(out, d, what) || write_week_field(out, d, what, flag))
        return;
    switch (what) {
    case 'Y':
        write_number(out, d->year, 1, flag, '0');
        return;
    case 'C':
        write_number(out, d->year / 100, 2, flag, '0');
        return;
    case 'y':
        write_number(out, d->year % 100, 2, flag, '0');
        return;
    case 'm':
        write_number(out, d->month, 2, flag, '0');
        return;
    case 'd':
        write_number(out, d->day, 2, flag, '0');
        return;
    case 'e':
        write_number(out, d->day, 2, flag, ' ');
        return;
    case 'H':
        write_number(out, d->hour, 2, flag, '0');
        return;
    case 'k':
        write_number(out, d->hour, 2, flag, ' ');
        return;
    case 'I':
        write_number(out, hour, 2, flag, '0');
        return;
    case 'l':
        write_number(out, hour, 2, flag, ' ');
        return;
    case 'j':
        write_number(out, d->yearday, 3, flag, '0');
        return;
    case 'M':
        write_number(out, d->minute, 2, flag, '0');
        return;
    case 'S':
        write_number(out, d->second, 2, flag, '0');
        return;
    case 's':
        write_number(out, d->stamp, 1, flag, '0');
        return;
    default:
        xr_str_puts(out, "%");
        if (flag)
            xr_str_append(out, &flag, 1);
        xr_str_append(out, &what, 1);
    }
}

int xm_jstrftime(xm_jinterp *interp, const xm_jstr *format, xm_jvalue *out)
{
    struct date date;
    xr_str text = { 0 };
    const char *end = format->text + format->size;
    if (interp->now < -62135596800 || interp->now > 253402300799)
        return xm_jfail(interp, "strftime_now: the year is not in 1..9999");
    if (xm_jcount_work(interp, format->size))
        return -1;
    compute_date(interp->now, &date);
    for (const char *at = format->text; at < end; at++) {
        if (*at != '%' || at + 1 == end) {
            xr_str_append(&text, at, 1);
            continue;
        }
        char flag = 0;
        at++;
        if (at + 1 < end && (*at == '-' || *at == '_' || *at == '0'))
            flag = *at++;
        write_field(&text, &date, *at, flag);
    }
    return xm_jstr_take(interp, &text, out);
}
