# shellcheck shell=sh
# The VMM seen from the host.

try_outside() {
    began=$(start_time "$pid")
    outside_identity
    outside_privileges
    outside_namespaces
    outside_network
    outside_limits
    outside_mounts
    outside_files
    outside_others
    same "$(start_time "$pid")" "$began" "the process that was read was one and the same all the time" "I5"
}

outside_identity() {
    holder=$(open_files "$pid" | grep -c "|$(stat -c %d:%i "$home/sandboxes/$name/data.img")|")
    at_least "$holder" 1 "the process that box names has the sandbox's /data open" "I5"
    uids=$(of_all Uid "$pid" | tr ',' ' ')
    wrong=''
    for uid in $uids; do
        if [ "$isolation" = standard ]; then
            [ "$uid" = "$(id -u)" ] || wrong="$wrong $uid"
        else
            in_our_range "$uid" || wrong="$wrong $uid"
        fi
    done
    [ -n "$uids" ] || wrong=none
    if [ "$isolation" = standard ]; then
        same "$wrong" '' "every thread runs as the user who started it, and as nobody else" "J3"
    else
        same "$wrong" '' "every thread runs as a subordinate UID of ours, and as no user of the host" "J3 I7"
        apart=$(of_all Uid "$sibling_pid")
        is "$([ "$(of_all Uid "$pid")" != "$apart" ] && echo yes)" \
            "its sibling runs as another UID" "I7 H14" "$apart"
    fi
    is "$([ "$(id -u)" != 0 ] || ! echo "$uids" | grep -qw 0 && echo yes)" \
        "no thread runs as root" "J3" "$uids"
}

in_our_range() {
    awk -F: -v uid="$1" -v user="$(id -un)" -v number="$(id -u)" '
        ($1 == user || $1 == number) && uid >= $2 && uid < $2 + $3 { found = 1 }
        END { exit !found }' /etc/subuid
}

outside_privileges() {
    all=''
    for set in CapInh CapPrm CapEff CapBnd CapAmb; do
        all="$all$(of_all "$set" "$pid")"
    done
    none='0000000000000000 '
    same "$all" "$none$none$none$none$none" "no thread has, or can get, any capability" "J3"
    same "$(of_all NoNewPrivs "$pid")" "1 " "no thread can gain privileges by executing a program" "J3 J4"
    same "$(of_all Seccomp "$pid")$(of_all Filters "$pid")" "2 some " \
        "a system call filter is on for every thread" "G12 J3"
    same "$(of_all Groups "$pid")" " " "no thread has a supplementary group" "J4"
    same "$(of_all TracerPid "$pid")" "0 " "no debugger is attached" "I7"
}

outside_namespaces() {
    for kind in user mnt pid ipc uts net cgroup; do
        wrong=''
        ours=$(namespace self "$kind")
        theirs=$(namespace "$sibling_pid" "$kind")
        [ -n "$ours" ] && [ -n "$theirs" ] || wrong="unreadable: ours or the sibling's"
        for task in $(ls "/proc/$pid/task"); do
            its=$(namespace "$pid/task/$task" "$kind")
            case $its in
            '') wrong="thread $task: unreadable" ;;
            "$ours") wrong="thread $task: ours" ;;
            "$theirs") wrong="thread $task: the sibling's" ;;
            esac
        done
        same "$wrong" '' "its $kind namespace is neither ours nor its sibling's" "J3 J4"
    done
}

outside_network() {
    same "$(sed 1,2d "/proc/$pid/net/dev" | cut -d: -f1 | tr -d ' ' | tr '\n' ' ')" "lo " \
        "the VMM itself has no network but a loopback" "J4 H11"
    is "$(grep -q "@$abstract" /proc/net/unix && ! grep -q "$abstract" "/proc/$pid/net/unix" && echo yes)" \
        "the VMM itself does not see the host's abstract sockets" "J4"
    hex=$(printf ':%04X ' "$port")
    is "$(grep -q "$hex" /proc/net/tcp && ! grep -q "$hex" "/proc/$pid/net/tcp" && echo yes)" \
        "the VMM itself does not see the host's TCP listener" "J4"
}

outside_limits() {
    pids=$(cgroup_directory "$pid" pids) memory=$(cgroup_directory "$pid" memory)
    at_most "$(first_of "$pids/pids.max")" 192 "the kernel holds it to so many threads" "H2 H1"
    most=$(((ram_mib + 256) * 1048576))
    at_most "$(first_of "$memory/memory.max" "$memory/memory.limit_in_bytes")" "$most" \
        "the kernel holds it to the guest's memory and 256 MiB" "H8"
    if [ -e "$memory/memory.swap.max" ]; then
        same "$(cat "$memory/memory.swap.max")" 0 "it gets no swap besides" "H8"
    else
        at_most "$(first_of "$memory/memory.memsw.limit_in_bytes")" "$most" "it gets no swap besides" "H8"
    fi
    same "$(cat "$pids/cgroup.procs")" "$pid" "nobody else is in its cgroup" "I5 H13"
    is "$([ "$pids" != "$(cgroup_directory self pids)" ] && echo yes)" \
        "its cgroup is not ours" "H8" "$pids"
    same "$(rlimit "$pid" 'Max core file size')" "0 0" "it can leave no core file" "J6"
    same "$(rlimit "$pid" 'Max open files')" "1024 1024" "it can open 1024 files and no more" "J6"
    is "$([ "$(rlimit "$pid" 'Max file size' | cut -d' ' -f2)" != unlimited ] && echo yes)" \
        "no file can grow without end by its writing" "H3" "$(rlimit "$pid" 'Max file size')"
    at_most "$(cat /proc/self/oom_score_adj)" "$(($(cat "/proc/$pid/oom_score_adj") - 1))" \
        "the kernel ends it before us when memory runs out" "H8"
}

# Kernel file systems, device nodes, and read-only parts of the VMM one by one; nothing else.
outside_mounts() {
    foreign=$(mounts "$pid" | awk '
        $1 == "/" && $4 == "tmpfs" { next }
        $1 == "/proc" && $4 == "proc" { next }
        $1 ~ /^\/proc\// && ($2 ~ /^ro(,|$)/ || $4 ~ /^(tmpfs|devtmpfs)$/) { next }
        $1 == "/dev" && $4 == "tmpfs" { next }
        $1 ~ /^\/dev\/(null|zero|full|tty|random|urandom|kvm)$/ { next }
        $1 ~ /^\/(kernel|initrd|root\.img|env)$/ { next }
        $1 ~ /^\/firmware\/[^\/]*$/ { next }
        $1 ~ /^(\/usr)?\/lib(32|64)?\/.*\.so[.0-9]*$/ { next }
        $1 ~ /^(\/usr)?\/(local\/)?(bin|libexec)\/qemu[^\/]*$/ { next }
        { print $1 " (" $4 ")" }')
    same "$foreign" '' "nothing is mounted in it but its own parts" "J1 E8"
    same "$(mounts "$pid" | awk '$1 !~ /^\/(proc|dev)(\/|$)/ && ("," $2 ",") !~ /,ro,/ { print $1, $2 }')" '' \
        "no part of it can be written" "J2"
    same "$(mounts "$pid" | awk '$1 !~ /^\/(proc|dev)(\/|$)/ && $2 !~ /nosuid/ { print $1, $2 }')" '' \
        "no part of it can give privileges" "J3"
    same "$(mounts "$pid" | awk '$3 != "-" { print $1, $3 }')" '' \
        "nothing mounted on the host later appears in it" "G5"
    same "$(mounts "$pid" | awk '{ print $1 }' | sort | uniq -d)" '' "no mount hides another" "G3"
    folders=$(mounts "$pid" | awk '$1 !~ /^\/(proc|dev)?(\/|$)/ { print $1 }' | while read -r target; do
        as_owner "$pid" test -d "/proc/$pid/root$target" && echo "$target"
    done)
    same "$folders" '' "no folder of the host is in it, only files" "J1"
    for path in kcore keys timer_list; do
        [ -e "/proc/$path" ] || continue
        size=$(as_owner "$pid" head -c 1 "/proc/$pid/root/proc/$path" 2>/dev/null | wc -c)
        same "$size" 0 "/proc/$path is masked and really empty" "G3"
    done
    is "$(as_owner "$pid" test -e "/proc/$pid/root/kernel" &&
        ! as_owner "$pid" test -e "/proc/$pid/root$flags" && echo yes)" \
        "the flags' folder is not in its tree" "J4"
}

outside_files() {
    own=$(stat -c '|%d:%i|' "$home/sandboxes/$name/data.img" "$home"/snapshots/*/* 2>/dev/null)
    foreign=$(open_files "$pid" | grep -v -F "$own" | awk -F'|' '
        $1 == "socket" || $1 == "fifo" { next }
        $3 ~ /^anon_inode:\[?(eventfd|eventpoll|signalfd|timerfd|kvm-vm|kvm-vcpu:[0-9]+|kvm-device)\]?$/ { next }
        $3 ~ /^\/memfd:/ { next }
        $1 == "character special file" && $3 ~ /^\/dev\/(null|kvm)$/ { next }
        $3 ~ /^\/(root\.img|kernel|initrd)$/ { next }
        { print }')
    same "$foreign" '' "it holds nothing of the host open but its disk and its snapshot" "G1 J4"
    is "$(open_files "$pid" | grep -q '^socket' && echo yes)" "its descriptors could be listed" control
    same "$(as_owner "$pid" cat "/proc/$pid/environ" | tr '\0' '\n')" '' \
        "its environment is empty" "I11"
    is "$(tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -e qemu && ! tr '\0' '\n' <"/proc/$pid/cmdline" |
        grep -q -e "$home" -e "$work" && echo yes)" "its command line names no path of the user's" "I11"
}

# What other users of this host could open.
outside_others() {
    # Not the OCI runtime's notes of process IDs, and what is the same for everybody.
    open=$(find "$home" \( -type d -o -type f -o -type s \) -perm /077 ! -path "$home/kernels*" \
        ! -path "$home/images*" ! -path "$home/initrd*" ! -path "$home/runtime/*.pid" \
        ! \( -path "$home/runtime/*" -type d -perm 711 \) -printf '%M %P\n')
    same "$open" '' "no file of a sandbox is open to other users: disks, memory, sockets, tokens" "I1 I2 D5"
    same "$(stat -c %a "$home")" 700 "other users cannot enter BOX_HOME" "I1 I8"
    foreign=$(find "$home" ! -user "$(id -u)" -printf '%u %P\n')
    same "$foreign" '' "no file in BOX_HOME is another user's" "I6"
}
