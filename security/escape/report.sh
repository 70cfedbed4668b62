# shellcheck shell=sh
# What box says of the VMM, against our own reading of it.

try_report() {
    run_box inspect --help
    has_security_report=$(grep -q -e --security-report "$said" && echo yes)
    # QEMU starts and ends threads as its guest reads and writes: until their number keeps still.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        many=$(threads "$pid" | wc -l)
        get_report
        [ "$many" != "$(threads "$pid" | wc -l)" ] || break
    done
    "$python" -I "$here/report.py" "$work/inspection" >"$work/report" 2>"$work/report.err"
    same "$reported" 0 "box inspect finds nothing wrong" "J3"
    is "$([ -s "$work/report" ] && echo yes)" "the report can be read by a program" control \
        "$(cat "$work/report.err")"
    same "$(sed -n 's/^failed //p' "$work/report")" '' "no fact of the report differs or is unreadable" "J3"
    same "$(reported pid)" "$pid" "the report is of the process that was read" "I5"
    agrees identity.uid "$(of_all Uid "$pid" | tr ', ' '\n\n' | sort -u | tr '\n' ' ')" "UIDs"
    agrees limit.pids "$(first_of "$(cgroup_directory "$pid" pids)/pids.max")" "limit of threads"
    agrees limit.memory "$(memory_limit)" "limit of memory"
    for fact in no_new_privs seccomp capabilities; do
        is "$(reported "$fact" | grep -q "on $many threads" && echo yes)" \
            "box has read $fact of every thread there is" "G12" "$(reported "$fact"), not $many"
    done
    for kind in user mnt pid ipc uts net cgroup; do
        inode=$(namespace "$pid" "$kind" | cut -d: -f2)
        is "$(reported "namespace.$kind" | grep -q "$kind:\[$inode\]" && echo yes)" \
            "box reports the $kind namespace that it is in" "J4" "$(reported "namespace.$kind")"
    done
}

# The fullest report that this box has, in $work/inspection.
get_report() {
    if [ "$has_security_report" = yes ]; then
        run_box inspect "$name" --security-report=json
        reported=$status
    else
        run_box inspect "$name" -o json
        reported=$status
    fi
    cp "$said" "$work/inspection"
}

memory_limit() {
    directory=$(cgroup_directory "$pid" memory)
    first_of "$directory/memory.max" "$directory/memory.limit_in_bytes"
}

reported() { sed -n "s/^$1 //p" "$work/report"; }

# agrees FACT VALUE WHAT
agrees() {
    same "$(reported "$1" | sed 's/ *$//')" "$(echo "$2" | sed 's/^ *//; s/ *$//')" \
        "box and we read the same $3" "J3"
}
