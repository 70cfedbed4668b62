#!/bin/sh
# Tries from inside a throw-away sandbox what a hostile workload would try, looks at its VMM from
# outside, and compares what box says of it.
#
#   security/escape-test.sh BOX ISOLATION [BACKEND]
#
# BOX        the program, for example "$(command -v box)"
# ISOLATION  standard (as an ordinary user) or strict
# BACKEND    qemu
#
# Needs sh, awk, coreutils, findutils, util-linux and python3, a guest kernel in BOX's own BOX_HOME
# (`box quickstart` puts one there), and no root. Everything else is made in a folder of its own
# below /tmp, under a BOX_HOME of its own, and taken away in the end, also on Ctrl-C.
#
# Each result is a sentence: `ok - ...`, `not ok - ...`, or `ok - ... # SKIP why`. In brackets stand
# the attacks that it is about (security/escape/README.md). The exit status is 1 when any is not ok,
# 2 when the suite could not be run. ESCAPE_PARTS="outside report" runs only these parts.
set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)/escape
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
LC_ALL=C
export PATH LC_ALL
umask 077

usage() {
    echo "usage: escape-test.sh BOX standard|strict [qemu]" >&2
    exit 2
}

[ $# -eq 2 ] || [ $# -eq 3 ] || usage
box=$(command -v -- "$1") || usage
case $box in /*) ;; *) box=$PWD/$box ;; esac
isolation=$2
backend=${3-qemu}
case $isolation in standard | strict) ;; *) usage ;; esac
if [ "$backend" != qemu ]; then
    echo "escape-test: box has no backend $backend yet" >&2
    exit 2
fi
if [ "$isolation" = standard ] && [ "$(id -u)" = 0 ]; then
    echo "escape-test: box refuses standard to root; run this as an ordinary user" >&2
    exit 2
fi
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
    echo "escape-test: python3 is missing" >&2
    exit 2
}
all_parts="inside copies outside report exhaustion endings"
parts=${ESCAPE_PARTS:-$all_parts}

# shellcheck source=security/escape/sentences.sh
. "$here/sentences.sh"
# shellcheck source=security/escape/world.sh
. "$here/world.sh"
# shellcheck source=security/escape/inside.sh
. "$here/inside.sh"
# shellcheck source=security/escape/copies.sh
. "$here/copies.sh"
# shellcheck source=security/escape/proc.sh
. "$here/proc.sh"
# shellcheck source=security/escape/outside.sh
. "$here/outside.sh"
# shellcheck source=security/escape/report.sh
. "$here/report.sh"
# shellcheck source=security/escape/exhaustion.sh
. "$here/exhaustion.sh"
# shellcheck source=security/escape/endings.sh
. "$here/endings.sh"
# shellcheck source=security/escape/flags.sh
. "$here/flags.sh"

make_world
plant_flags
show_flags
start_sandboxes
for part in $parts; do
    case " $all_parts " in
    *" $part "*) "try_$part" ;;
    *) give_up "there is no part $part" ;;
    esac
done
end_sandboxes
look_for_flags
summary
