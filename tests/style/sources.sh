# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the checks of this folder. Lists the source files below the current
# folder: those git knows; where there is no git, all outside build/.
sources() {
  if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git ls-files -- '*.c' '*.h' '*.cu'
  else
    find . -name build -prune -o \( -name '*.[ch]' -o -name '*.cu' \) -print |
      sed 's|^\./||' | sort
  fi | while read -r file; do [ -e "$file" ] && echo "$file"; done
}
