# shellcheck shell=sh
# A guest that ends its machine, again and again; and what is left of one in the next.

try_endings() {
    guest 'echo left >/etc/left; echo left >/bin/left; echo kept >/data/kept; sync; cat /etc/left'
    same "$(cat "$said")" left "the guest writes to its root" control
    ending "reboot -f" "a guest that reboots"
    guest 'cat /etc/left /bin/left 2>/dev/null; cat /data/kept; cat /proc/sys/kernel/core_pattern'
    same "$(cat "$said")" "kept
core" "of what a guest has written only /data is there after its machine" "J2 G2"
    ending "echo c >/proc/sysrq-trigger" "a guest that crashes its kernel"
    ending "poweroff -f" "a guest that switches itself off"
}

# ending COMMAND WHO: what that command does to the machine is over soon and leaves nothing.
ending() {
    ended=$pid
    directory=$(cgroup_directory "$pid" pids)
    BOX_HOME=$home BOX_DESIRED=$folder timeout -k 5 90 "$box" exec --timeout 60 "$name" -- sh -c "$1" \
        >"$out/ending.out" 2>"$out/ending.err" </dev/null
    same "$?" 125 "$2 ends its own command with an error" "J5" "$(cat "$out/ending.err")"
    is "$(gone "$ended" 60 && echo yes)" "$2 ends its own machine" "H13"
    run_box up "$name"
    same "$status" 0 "$2 is started again when asked" "H13"
    find_vmms
    is "$([ -n "$pid" ] && [ "$pid" != "$ended" ] && echo yes)" "$2 gets another machine" "H13"
    is "$(case $directory in "$(cgroup_directory "$pid" pids)") echo yes ;; *) [ -d "$directory" ] || echo yes ;; esac)" \
        "$2 leaves no cgroup behind" "H13" "$directory"
    same "$(cat "$directory/cgroup.procs" 2>/dev/null | grep -v -x "$pid")" '' \
        "$2 leaves no process behind" "H13"
    run_box exec "$sibling" -- cat /data/flag
    same "$(cat "$said")" "$sibling_flag" "$2 disturbs no sibling" "H13"
    rm -f "$said"
}
