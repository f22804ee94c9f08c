# SPDX-License-Identifier: Apache-2.0
#
# Sourced by ./quickstart and ./check: installs the packages that are missing on
# Debian 12 or Ubuntu 24.04. Says what it does; sudo only when not root.

xray_packages="build-essential cmake ninja-build libinih-dev libcjson-dev libpcre2-dev libutf8proc-dev libcmocka-dev zlib1g-dev libzstd-dev"

xray_setup() {
    local missing="" package sudo=""
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: no dpkg on this system; needed are: $*" >&2
        return 0
    fi
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' ||
            missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        sudo="sudo"
        command -v sudo >/dev/null || {
            echo "setup: run as root, or install:$missing" >&2
            return 1
        }
    fi
    echo "setup: installing with apt-get:$missing"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 ||
        { $sudo apt-get update &&
            DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends $missing; } ||
        { echo "setup: apt-get could not install:$missing" >&2; return 1; }
}

# Builds a preset; quiet unless it fails. In CI a warning is an error; a user's
# compiler may be newer and know more of them.
xray_build() {
    local log werror=OFF
    [ "${CI:-}" = true ] && werror=ON
    log=$(mktemp)
    echo "build: preset $1"
    { cmake --preset "$1" -DXRAY_WERROR="$werror" && cmake --build --preset "$1"; } >"$log" 2>&1 ||
        { cat "$log" >&2; rm -f "$log"; return 1; }
    rm -f "$log"
}
