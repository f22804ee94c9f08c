# SPDX-License-Identifier: Apache-2.0
# The rules of style.sh. Reads C sources formatted by clang-format: a function
# opens with '{' in column 1 and closes with '}' in column 1. `table` is the page
# whose table says which room may include which; `whole` is 1 where every room of
# it must be there.

function find(line, text) {
    print FILENAME ":" line ": " text
    bad = 1
}

# The part of the tree a file belongs to.
function layer(path) {
    if (path ~ /^core\//)
        return substr(path, 1, match(substr(path, 6), "/") + 4)
    if (path ~ /^model\//)
        return substr(path, 1, match(substr(path, 7), "/") + 5)
    if (path ~ /^plugins\//)
        return substr(path, 1, match(substr(path, 9), "/") + 7)
    if (path ~ /^include\//)
        return "include"
    return "free" # tests, bench, examples
}

# The row of the table that holds for a part of the tree: its own, or that of all
# plugins.
function row_of(part) {
    return part ~ /^plugins\// && !(part in row_line) ? "plugins/NAME" : part
}

function may_include(from, to) {
    return from == "free" || from == to || !(row_of(from) in row_line) ||
           index(" " allowed[row_of(from)] " ", " " to " ") > 0
}

function find_row(room, text) {
    print table ":" row_line[room] ": " text
    bad = 1
}

# The table of docs/architecture.md: "| room | rooms it may include |", each room
# in backquotes, after the line with these names of columns.
function read_table(    text, n, line, cell, inside, twice) {
    while ((getline text < table) > 0) {
        line++
        if (text ~ /^\| room \| may include \|/)
            inside = 1
        else if (text !~ /^\|/)
            inside = 0
        n = split(text, cell, "|")
        gsub(/[ `]/, "", cell[2])
        if (!inside || cell[2] == "room" || cell[2] ~ /^-+$/)
            continue
        gsub(/[`,]/, " ", cell[3])
        gsub(/  +/, " ", cell[3])
        twice = cell[2] in row_line
        row_line[cell[2]] = line
        if (n != 4)
            find_row(cell[2], "a row of the table has two cells")
        if (twice)
            find_row(cell[2], cell[2] " has two rows")
        allowed[cell[2]] = cell[3]
    }
    close(table)
    if (!line || !("core/base" in row_line)) {
        print table ":1: the page has no table of rooms"
        bad = 1
    }
}

# 1 if a row leads from `room` to `goal`; `been` holds the rooms passed.
function leads_to(room, goal, been,    i, n, next_room) {
    n = split(allowed[room], next_room, " ")
    for (i = 1; i <= n; i++) {
        if (next_room[i] == goal)
            return 1
        if (next_room[i] in been)
            continue
        been[next_room[i]] = 1
        if (leads_to(next_room[i], goal, been))
            return 1
    }
    return 0
}

function check_table(    room, i, n, to, been) {
    for (room in row_line) {
        n = split(allowed[room], to, " ")
        for (i = 1; i <= n; i++)
            if (!(to[i] in row_line))
                find_row(room, to[i] " has no row in the table of rooms")
        split("", been)
        if (leads_to(room, room, been))
            find_row(room, "from " room " the rows lead back to it")
    }
}

function start_file() {
    if (last_file != "" && lines > 600)
        print_size()
    here = layer(FILENAME)
    lines = 0
    in_comment = 0
    function_at = 0
    signature = ""
    limit = FILENAME ~ /^plugins\/device-/ ? 200 : 80
    last_file = FILENAME
    if (here != "free" && !(row_of(here) in row_line) && !(here in told)) {
        find(1, here " has no row in the table of rooms of " table)
        told[here] = 1
    }
    seen[row_of(here)] = 1
    if ($0 !~ /^\/\* SPDX-License-Identifier: Apache-2\.0/)
        find(1, "has no SPDX line on top")
    opening = 1
    opening_words = 0
    last_comment = ""
    comment_open = 0
}

# The comment that begins with the SPDX line goes on with a sentence.
function read_opening(    text) {
    text = $0
    sub(/SPDX-License-Identifier: [^ ]*/, "", text)
    opening_words += gsub(/[A-Za-z0-9.\/_-]*[A-Za-z][A-Za-z0-9.\/_-]*/, "", text)
    if ($0 !~ /\*\//)
        return
    opening = 0
    if (opening_words < 4)
        find(1, "the comment on top has no sentence that says what the file is for")
}

# Public callbacks: the comment above or on the line has a threading tag, and
# holds for those after it that have no comment of their own.
function check_tag(    at, tag) {
    tag = "\\[(control|any|collective|stream)\\]"
    if ($0 ~ /^typedef struct/)
        last_comment = ""
    if ($0 ~ /\(\*[a-z_0-9]+\)\(/ && $0 !~ /^[ ]*\/?\*/ && last_comment !~ tag && $0 !~ tag)
        find(FNR, "the callback has no threading tag (<xray/abi.h>)")
    at = index($0, "/*")
    if (at) {
        last_comment = substr($0, at)
        comment_open = 1
    } else if (comment_open) {
        last_comment = last_comment " " $0
    }
    if ($0 ~ /\*\//)
        comment_open = 0
}

# Kernels, whose functions have the short names of mathematics.
function is_kernel(path) {
    return path ~ /^plugins\/device-.*\.(cu|h)$/ || path ~ /^tests\/cuda\/emulate/ || path ~ /^include\//
}

function check_static(text,    name) {
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*[ ]*\(/)) {
        name = substr(text, RSTART, RLENGTH)
        sub(/[ ]*\($/, "", name)
        text = substr(text, RSTART + RLENGTH)
        if (name ~ /[a-z]/ && name !~ /^__/) {
            if (length(name) < 5)
                find(signature_at, name " is a short name for a static function: five letters at least")
            return
        }
    }
}

function print_size() {
    print last_file ":" lines ": the file has " lines " lines, 600 at most"
    bad = 1
}

# The line without comments, strings and characters.
function strip(s,    out, at) {
    gsub(/\\\\/, "", s)
    gsub(/\\"/, "", s)
    gsub(/\\'/, "", s)
    gsub(/'[{}"]'/, "0", s)
    out = ""
    while (s != "") {
        if (in_comment) {
            at = index(s, "*/")
            if (!at)
                return out
            s = substr(s, at + 2)
            in_comment = 0
        } else if (match(s, /"|\/\*|\/\//)) {
            out = out substr(s, 1, RSTART - 1)
            at = substr(s, RSTART, RLENGTH)
            s = substr(s, RSTART + RLENGTH)
            if (at == "//")
                return out
            if (at == "/*") {
                in_comment = 1
            } else {
                out = out "\"\""
                at = index(s, "\"")
                s = at ? substr(s, at + 1) : ""
            }
        } else {
            return out s
        }
    }
    return out
}

# Checks the name of a function with external linkage against its folder.
function check_name(name, line) {
    if (name == "main")
        return
    if (here == "include" && name !~ /^xray_/)
        find(line, name " lacks the prefix xray_")
    else if (here == "core/cli" && name !~ /^(cli|xr)_/)
        find(line, name " lacks the prefix cli_ or xr_")
    else if (here ~ /^core\// && here != "core/cli" && name !~ /^xr_/)
        find(line, name " lacks the prefix xr_")
    else if (here ~ /^model\// && name !~ /^xm_/)
        find(line, name " lacks the prefix xm_")
    else if (here ~ /^plugins\// && name ~ /^(xray|xr|xm)_/)
        find(line, name " is the plugin's own and may not start with xray_, " \
                   "xr_ or xm_")
}

BEGIN {
    read_table()
    check_table()
    words = "TO" "DO|FIX" "ME|X" "XX"
    banned = "v?sprintf|strcpy|strcat|gets|atoi|atof|strtok|rand|abort|fork"
}

FNR == 1 { start_file() }
opening { read_opening() }
here == "include" { check_tag() }

{
    lines = FNR
    if ($0 ~ ("(^|[^A-Za-z_])(" words ")([^A-Za-z_]|$)"))
        find(FNR, "the line holds a word that has no place here")
}

/^#include "/ {
    split($0, part, "\"")
    to = part[2] ~ /\// ? layer(part[2]) : here
    if (to == "free" && part[2] !~ /^(tests|bench)\//)
        to = here # beside the file
    if (!may_include(here, to))
        find(FNR, here " may not include " part[2])
}

{
    code = strip($0)
    text = " " code
    while (match(text, "[^A-Za-z0-9_](" banned "|exit)[ ]*\\(")) {
        name = substr(text, RSTART + 1, RLENGTH - 1)
        text = substr(text, RSTART + RLENGTH - 1)
        before = substr(code, 1, length(code) - length(text))
        sub(/[ ]*\($/, "", name)
        if (before ~ /(->|\.)[a-z]*$/) # a member of that name
            continue
        if (name == "exit" && (here == "core/cli" || here == "free"))
            continue
        if (name == "abort" && code ~ /\(\*abort\)/)
            continue
        find(FNR, name " is banned")
    }

    if (code ~ /^{/ && signature != "") {
        function_at = signature_at
        text = signature
        if (text !~ /(^|[ \t])(static|typedef|struct|union|enum)[ \t]/ &&
            match(text, /[A-Za-z_][A-Za-z0-9_]*[ ]*\(/)) {
            name = substr(text, RSTART, RLENGTH)
            sub(/[ ]*\($/, "", name)
            check_name(name, signature_at)
        }
        if (text ~ /(^|[ \t])static[ \t]/ && !is_kernel(FILENAME))
            check_static(text)
    }
    if (function_at && code ~ /^}/) {
        size = FNR - function_at + 1
        if (size > limit)
            find(function_at, "the function has " size " lines, " limit \
                              " at most")
        function_at = 0
    }
    # clang-format indents a block by 4: the fifth one inside a function.
    if (function_at && here != "free" && limit == 80 &&
        code ~ /^                        [^ ].*;$/ && deep(code))
        find(FNR, "blocks are nested 5 deep, 4 at most")

    if (code ~ /^[A-Za-z_]/ && code !~ /;[ \t]*$/) {
        signature = signature == "" ? code : signature
        if (signature == code)
            signature_at = FNR
        else
            signature = signature " " code
    } else if (code ~ /^[ \t]/ && signature != "" && !function_at) {
        signature = signature " " code
    } else if (code != "" || $0 == "") {
        signature = ""
    }
    # Depth of blocks by braces, for `deep`.
    opens = gsub(/{/, "{", code)
    closes = gsub(/}/, "}", code)
    depth = function_at ? depth + opens - closes : 0
}

function deep(code) {
    return depth > 5
}

END {
    if (lines > 600)
        print_size()
    # A tree with the page of its own is whole.
    if (whole)
        for (room in row_line)
            if (!(room in seen))
                find_row(room, room " is in the table of rooms, and no file is there")
    exit bad
}
