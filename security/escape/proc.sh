# shellcheck shell=sh
# A small reading of /proc of its own: nothing here comes from box or asks it.

# threads PID: a line a thread, of name=value words, until two listings agree.
threads() {
    for try in 1 2 3 4 5; do
        before=$(ls "/proc/$1/task") || return
        for task in $before; do
            awk -F '[:\t ]+' '
                /^(Uid|Gid):/ { printf "%s=%s,%s,%s,%s ", $1, $2, $3, $4, $5 }
                /^Groups:/ { printf "Groups=%s ", $2 }
                /^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|TracerPid):/ {
                    printf "%s=%s ", $1, $2 }
                /^Seccomp_filters:/ { printf "Filters=%s ", ($2 > 0 ? "some" : "none") }
                END { print "" }' "/proc/$1/task/$task/status"
        done >"$work/threads"
        [ "$before" = "$(ls "/proc/$1/task")" ] && cat "$work/threads" && return
    done
    echo "the threads kept changing, $try times"
}

# of_all WORD PID: the different values of one word among all threads.
of_all() { threads "$2" | tr ' ' '\n' | grep "^$1=" | sed 's/^[^=]*=//' | sort -u | tr '\n' ' '; }

# as_owner PID COMMAND...: in the process's user namespace when its owner has another UID than we:
# the kernel shows what is open and what was in the environment to nobody else.
as_owner() {
    owner=$1
    shift
    if [ -r "/proc/$owner/fd" ] && ls "/proc/$owner/fd" >/dev/null 2>&1; then
        "$@"
    else
        nsenter -t "$owner" -U -S 0 -G 0 -- "$@"
    fi
}

# namespace PID KIND: its device and inode; nothing when it cannot be read.
namespace() { stat -Lc %d:%i "/proc/$1/ns/$2" 2>/dev/null; }

# open_files PID: a line a descriptor: type, device:inode, what it is called.
open_files() {
    # shellcheck disable=SC2016  # the inner shell's
    as_owner "$1" sh -c 'for fd in /proc/'"$1"'/fd/*; do
        printf "%s|%s\n" "$(stat -Lc "%F|%d:%i" "$fd" 2>/dev/null)" "$(readlink "$fd")"; done'
}

# mounts PID: a line a mount: target, options, propagation ("-": none), type.
mounts() {
    awk '{ shared = ""
        for (i = 7; $i != "-"; i++) shared = shared $i ","
        print $5, $6, (shared == "" ? "-" : shared), $(i + 1) }' "/proc/$1/mountinfo"
}

start_time() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f20; }

# cgroup_directory PID CONTROLLER: where the limits of that controller are that it is under.
cgroup_directory() {
    awk -v controller="$2" -v pid="$1" '
        function unescaped(text) { gsub(/\\040/, " ", text); return text }
        FILENAME ~ /cgroup$/ {
            split($0, part, ":")
            path = substr($0, length(part[1]) + length(part[2]) + 3)
            if (part[2] == "") unified = path
            else if (("," part[2] ",") ~ ("," controller ",")) own = path
            next
        }
        { for (i = 7; $i != "-"; i++); type = $(i + 1); options = $(i + 3) }
        type == "cgroup" && ("," options ",") ~ ("," controller ",") { v1 = unescaped($5); v1root = $4 }
        type == "cgroup2" { v2 = unescaped($5); v2root = $4 }
        END {
            if (own != "") { mount = v1; root = v1root; path = own }
            else { mount = v2; root = v2root; path = unified }
            if (root != "/" && index(path, root) == 1) path = substr(path, length(root) + 1)
            print mount path
        }' "/proc/$1/cgroup" /proc/self/mountinfo
}

# first_of FILE...: the content of the first one that there is; "no limit file" without one.
first_of() {
    for file; do
        [ ! -e "$file" ] || {
            cat "$file"
            return
        }
    done
    echo "no limit file"
}

# rlimit PID NAME: soft and hard, as /proc/PID/limits has them.
rlimit() { sed -n "s/^$2  *\([^ ]*\)  *\([^ ]*\).*/\1 \2/p" "/proc/$1/limits"; }

kib() { sed -n "s/^$2:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$1/status" 2>/dev/null | grep . || echo 0; }
