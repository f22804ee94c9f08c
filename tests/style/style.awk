# SPDX-License-Identifier: Apache-2.0
# The rules of style.sh. Reads C sources formatted by clang-format: a function
# opens with '{' in column 1 and closes with '}' in column 1.

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

function may_include(from, to) {
    if (from == "free" || from == to)
        return 1
    if (from == "include")
        return 0
    return index(" " allowed[from] " ", " " to " ") > 0 ||
           (from ~ /^plugins\// && (to == "core/base" || to ~ /^model\//))
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
    if ($0 !~ /^\/[*\/] SPDX-License-Identifier: Apache-2\.0/)
        find(1, "has no SPDX line on top")
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

# What a function of this folder that others can link to may be called.
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
    allowed["core/config"] = "core/base"
    allowed["core/plugin"] = "core/base core/config"
    allowed["core/actor"] = "core/base core/config core/plugin"
    allowed["core/data"] = "core/base core/config model/hf model/text model/chat"
    allowed["core/monitor"] = "core/base core/config"
    allowed["core/rl"] = "core/base core/config core/plugin core/actor " \
                         "core/data core/monitor model/hf model/text model/chat"
    allowed["core/ab"] = "core/base core/config core/rl"
    allowed["core/cli"] = allowed["core/rl"] " core/rl core/ab"
    allowed["model/hf"] = "core/base"
    allowed["model/text"] = "core/base"
    allowed["model/chat"] = "core/base"
    allowed["model/nn"] = "core/base model/hf model/text"
    allowed["model/rl"] = "core/base"
    allowed["model/train"] = allowed["model/nn"] " model/nn"
    allowed["model/serve"] = allowed["model/nn"] " model/nn"
    words = "TO" "DO|FIX" "ME|X" "XX"
    banned = "v?sprintf|strcpy|strcat|gets|atoi|atof|strtok|rand|abort|fork"
}

FNR == 1 { start_file() }

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
    exit bad
}
