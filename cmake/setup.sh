# SPDX-License-Identifier: Apache-2.0
#
# Sourced by ./quickstart and ./check: installs the packages that are missing on
# Debian 12 or Ubuntu 24.04. Says what it does; sudo only when not root. "a|b" is
# one library that has two names among them.

xray_packages="build-essential cmake ninja-build libinih-dev libcjson-dev libpcre2-dev libutf8proc-dev libcmocka-dev zlib1g-dev libzstd-dev libffi-dev libmsgpack-c-dev|libmsgpack-dev libcurl4-openssl-dev"

xray_installed() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'
}

# The name that this system has, of "a|b": installed, else known to apt; else the
# last, and failure.
xray_name() {
    local name
    for name in ${1//|/ }; do
        if xray_installed "$name"; then echo "$name"; return; fi
    done
    for name in ${1//|/ }; do
        if apt-cache show "$name" >/dev/null 2>&1; then echo "$name"; return; fi
    done
    echo "${1##*|}"
    return 1
}

xray_setup() {
    local missing="" package sudo=""
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: no dpkg on this system; needed are: $*" >&2
        return 0
    fi
    for package in "$@"; do
        xray_installed "$(xray_name "$package")" || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        sudo="sudo"
        command -v sudo >/dev/null || {
            echo "setup: run as root, or install:$missing" >&2
            return 1
        }
    fi
    for package in $missing; do # a system that never asked apt knows no names
        xray_name "$package" >/dev/null || { $sudo apt-get update >/dev/null 2>&1; break; }
    done
    missing=$(for package in $missing; do echo -n " $(xray_name "$package" || true)"; done)
    echo "setup: installing with apt-get:$missing"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 ||
        { $sudo apt-get update &&
            DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing; } ||
        { echo "setup: apt-get could not install:$missing" >&2; return 1; }
}

# The same for packages a check can do without: those that apt does not have are
# named and passed over.
xray_setup_optional() {
    local have="" package
    command -v apt-cache >/dev/null || return 0
    for package in "$@"; do
        if xray_installed "$package" ||
            apt-cache show "$package" >/dev/null 2>&1; then
            have="$have $package"
        else
            echo "setup: skipped: apt has no $package"
        fi
    done
    # shellcheck disable=SC2086
    [ -z "$have" ] || xray_setup $have
}

# Begins to install Python packages in a folder of their own, beside the build. Where
# that fails, the tests that compare with them say so.
xray_python_begin() { # FOLDER PACKAGE...
    local folder=$1
    shift
    [ ! -e "$folder/complete" ] || return 0
    xray_python_log=$(mktemp)
    {
        rm -rf "$folder"
        python3 -m venv "$folder" &&
            "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check "$@" &&
            touch "$folder/complete"
    } >"$xray_python_log" 2>&1 </dev/null &
    xray_python_pid=$!
}

# Waits for the packages and has python3 find them.
xray_python_end() { # FOLDER
    if [ -n "${xray_python_pid:-}" ]; then
        wait "$xray_python_pid" || { echo "setup: no Python packages:" && tail -n 1 "$xray_python_log"; }
        rm -f "$xray_python_log"
    fi
    [ -e "$1/complete" ] || return 1
    PATH=$PWD/$1/bin:$PATH
}

# A clang that links libFuzzer, or failure.
xray_fuzzer() {
    local name dir
    dir=$(mktemp -d)
    echo '#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n) { return p && n == 77; }' >"$dir/a.c"
    for name in clang clang-14 clang-18; do
        if command -v "$name" >/dev/null &&
            "$name" -fsanitize=fuzzer,address,undefined -o "$dir/a" "$dir/a.c" >/dev/null 2>&1; then
            rm -rf "$dir"
            command -v "$name" # whole, or CMake begins anew in a folder it configured
            return 0
        fi
    done
    rm -rf "$dir"
    return 1
}

# Builds a preset; quiet unless it fails. In CI a warning is an error; a user's
# compiler may be newer and know more of them.
xray_build() {
    local log werror=OFF preset=$1
    shift
    [ "${CI:-}" = true ] && werror=ON
    log=$(mktemp)
    echo "build: preset $preset"
    { cmake --preset "$preset" -DXRAY_WERROR="$werror" "$@" && cmake --build --preset "$preset"; } >"$log" 2>&1 ||
        { cat "$log" >&2; rm -f "$log"; return 1; }
    rm -f "$log"
}
