"""The fixed shell scripts of image builds. What varies reaches them as positional arguments.

POSIX sh with no more than busybox has: bases are Alpine, Debian, Fedora or nothing but busybox. The
scripts are files of the context and no words of instructions, which podman repeats in its errors.
"""

from __future__ import annotations

from collections.abc import Mapping

STAGING = "/.box-build"
"""The build's own directory in the image; nothing of it is left at the end."""

# Without Pattern-Only a name that is no package is tried as a regular expression over all of them.
_APT = """\
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y -o APT::Cmd::Pattern-Only=true --no-install-recommends install -- "$@"
apt-get clean
rm -rf /var/lib/apt/lists/*
"""

_APK = """\
set -eu
apk add --no-cache -- "$@"
"""

# No `--`: the parser of dnf 5 does not know it (libdnf5-cli, ArgumentParser). A package's name
# cannot begin with a dash.
_DNF = """\
set -eu
dnf install -y --setopt=install_weak_deps=False "$@"
dnf clean all
"""

# Arguments: NAME SHELL SUDO (yes or no), again and again. useradd and adduser are not everywhere
# and do not agree. A user that is there keeps its IDs and its home, so that twice is like once.
_USERS = """\
set -eu
fail() {
    printf 'box: user %s: %s\\n' "$name" "$1" >&2
    exit 1
}
# The line of file $1 that begins with $2 and a colon.
entry() {
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        "$2":*) printf '%s\\n' "$line" && return ;;
        esac
    done <"$1"
}
# That line becomes $3; at the end when there is none.
put() {
    text='' found=''
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        "$2":*) line=$3 found=yes ;;
        esac
        text="$text$line
"
    done <"$1"
    [ -n "$found" ] || text="$text$3
"
    printf '%s' "$text" >"$1"
}
numbers() {
    { cat /etc/passwd && echo && cat /etc/group && echo; } |
        while IFS=: read -r _ _ number _; do
            printf ' %s ' "$number"
        done
}
# Sets id to the lowest number that neither a user nor a group has.
free() {
    used=$(numbers)
    id=1000
    while :; do
        case $used in
        *" $id "*) id=$((id + 1)) ;;
        *) break ;;
        esac
    done
}
add() {
    free
    group=$(entry /etc/group "$name")
    if [ -z "$group" ]; then
        group=$name:x:$id:
        put /etc/group "$name" "$group"
        [ ! -e /etc/gshadow ] || put /etc/gshadow "$name" "$name:!::"
    fi
    group=${group#*:*:}
    user=$name:x:$id:${group%%:*}::/home/$name:
    [ ! -e /etc/shadow ] || put /etc/shadow "$name" "$name:*::0:99999:7:::"
}
make_home() {
    owner=${user#*:*:}
    home=${owner#*:*:*:}
    home=${home%%:*}
    group=${owner#*:}
    owner=${owner%%:*}:${group%%:*}
    case $home in
    /home/*) ;;
    *) return 0 ;;
    esac
    [ ! -L "$home" ] || fail "$home is a symbolic link"
    if [ ! -d "$home" ]; then
        mkdir -p "$home"
        [ ! -d /etc/skel ] || cp -R /etc/skel/. "$home"
        chown -hR "$owner" "$home"
    elif [ -z "$new" ]; then
        return 0
    fi
    chown "$owner" "$home"
    chmod 0700 "$home"
}
allow_sudo() {
    command -v sudo >/dev/null || fail 'sudo is not in the image: add it to packages'
    mkdir -p /etc/sudoers.d
    rm -f "/etc/sudoers.d/$name"
    printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\\n' "$name" >"/etc/sudoers.d/$name"
    chmod 0440 "/etc/sudoers.d/$name"
}
for file in passwd group; do
    [ -e "/etc/$file" ] || : >"/etc/$file"
done
while [ $# -gt 0 ]; do
    name=$1 shell=$2 sudo=$3
    shift 3
    [ -x "$shell" ] || fail "the image has no shell $shell"
    user=$(entry /etc/passwd "$name")
    new=''
    if [ -z "$user" ]; then
        new=yes
        add
    fi
    put /etc/passwd "$name" "${user%:*}:$shell"
    make_home
    [ "$sudo" = no ] || allow_sudo
done
"""

# Arguments: NAME MODE PATH, again and again; NAME lies in the staging directory. A link at PATH is
# replaced, not written through; links among its parents are followed, as /bin is one.
_FILES = f"""\
set -eu
while [ $# -gt 0 ]; do
    name=$1 mode=$2 path=$3
    shift 3
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        printf 'box: %s is a directory of the image\\n' "$path" >&2
        exit 1
    fi
    mkdir -p -- "${{path%/*}}/"
    rm -f -- "$path"
    mv -- "{STAGING}/content/$name" "$path"
    chmod -- "$mode" "$path"
done
"""

SCRIPTS: Mapping[str, str] = {
    "apk": _APK,
    "apt": _APT,
    "dnf": _DNF,
    "files": _FILES,
    "users": _USERS,
}
"""By the names that they have in the staging directory."""
