# shellcheck shell=sh
# A folder of our own: BOX_HOME, Boxfiles, flags, listeners, two sandboxes; and its end.

name=escape
sibling=sibling
ram_mib=128
data_mib=16
controller='' witness='' listener=''

# run_box WORDS...: as if somebody had typed it; all it says is kept. $input is its standard input.
# The flag in its environment stands for whatever secrets a user's shell holds.
run_box() {
    count=$((count + 1))
    BOX_HOME=$home BOX_DESIRED=$folder ESCAPE_SECRET=$environment_flag \
        timeout -k 5 150 "$box" "$@" >"$out/$count.out" 2>"$out/$count.err" <"${input:-/dev/null}"
    status=$?
    input=''
    said=$out/$count.out
    complained=$out/$count.err
    return "$status"
}

# guest SCRIPT...: run by the guest's shell as root; the answer is in the file $said.
guest() {
    run_box exec --timeout "${limit:-20}" "$name" -- sh -c "$@"
}

# in_background SCRIPT...: the same without a time limit; its process is $child.
in_background() {
    count=$((count + 1))
    said=$out/$count.out
    complained=$out/$count.err
    BOX_HOME=$home BOX_DESIRED=$folder ESCAPE_SECRET=$environment_flag \
        "$box" exec --timeout "${limit:-20}" "$name" -- sh -c "$@" >"$said" 2>"$complained" </dev/null &
    child=$!
}

flag() {
    printf 'BOXFLAG-%s-%s' "$1" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
}

make_world() {
    kernels=$("$box" home 2>/dev/null)/kernels
    count=0 input='' environment_flag=''
    work=$(mktemp -d /tmp/box-escape-XXXXXX) || give_up "cannot make a folder below /tmp"
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # Others may enter, so that the file readable by all is readable by all; all else is private.
    chmod 711 "$work"
    home=$work/home folder=$work/desired out=$work/out flags=$work/flags
    mkdir "$home" "$folder" "$out" "$flags"
    chmod 711 "$flags"
    if ! cp -R -p "$kernels" "$home/kernels" 2>/dev/null; then
        give_up "there is no guest kernel in $kernels: run \`box quickstart\` once"
    fi
}

# One flag a place; $work/all holds them for the search in the end.
plant_flags() {
    environment_flag=$(flag environment)
    readable_flag=$(flag readable)
    private_flag=$(flag private)
    sibling_flag=$(flag sibling)
    printf '%s\n' "$readable_flag" >"$flags/readable"
    printf '%s\n' "$private_flag" >"$flags/private"
    chmod 644 "$flags/readable"
    chmod 600 "$flags/private"
    tcp_flag=$(flag tcp) path_flag=$(flag path) abstract_flag=$(flag abstract)
    printf '%s\n' "$environment_flag" "$readable_flag" "$private_flag" "$sibling_flag" \
        "$tcp_flag" "$path_flag" "$abstract_flag" >"$work/all"
    : >"$work/tokens"
    abstract=box-escape-${work##*-}
    mkfifo "$work/ready"
    printf '%s\n%s\n%s\n' "$tcp_flag" "$path_flag" "$abstract_flag" |
        "$python" -I "$here/listener.py" "$flags/socket" "$abstract" >"$work/ready" &
    listener=$!
    read -r port <"$work/ready" || give_up "the listeners did not start"
    "$python" -I "$here/witness.py" "$home" "$work/tokens" "$out/argv" &
    witness=$!
}

# ask KIND ADDRESS: what a listener answers to somebody on the host.
ask() {
    timeout 10 "$python" -I "$here/listener.py" --ask "$@" 2>/dev/null
}

# What is tried from inside must work out here, or its failure in there would show nothing.
show_flags() {
    same "$(ask tcp "127.0.0.1:$port")" "$tcp_flag" \
        "on the host, the TCP listener on 127.0.0.1 answers with its flag" control
    if [ "$(cat /proc/sys/net/ipv6/conf/lo/disable_ipv6 2>/dev/null)" = 0 ]; then
        same "$(ask tcp "[::1]:$port")" "$tcp_flag" \
            "on the host, the TCP listener on ::1 answers with its flag" control
    else
        skip "on the host, the TCP listener on ::1 answers with its flag" control "no IPv6 here"
    fi
    same "$(ask unix "$flags/socket")" "$path_flag" \
        "on the host, the Unix socket with a path answers with its flag" control
    same "$(ask unix "@$abstract")" "$abstract_flag" \
        "on the host, the abstract Unix socket answers with its flag" control
    same "$(cat "$flags/readable")" "$readable_flag" \
        "on the host, the flag that all may read can be read" control
    same "$(cat "$flags/private")" "$private_flag" \
        "on the host, the flag that only its user may read can be read by that user" control
}

# declare_sandbox NAME READONLY
declare_sandbox() {
    cat >"$folder/.draft" <<END
version: 1
base: builtin:busybox
backend: $backend
isolation: $isolation
network: none
readonly: $2
cpus: 1
ram_mib: $ram_mib
data_size: ${data_mib}M
END
    mv "$folder/.draft" "$folder/$1.Boxfile"
}

start_sandboxes() {
    declare_sandbox "$name" false
    declare_sandbox "$sibling" true
    run_box sync "$folder" || give_up "the sandboxes did not start" "$(cat "$said" "$complained")"
    printf '%s' "$sibling_flag" >"$work/sibling-flag"
    input=$work/sibling-flag
    run_box exec "$sibling" -- sh -c 'cat >/data/flag; sync' ||
        give_up "the sibling did not take its flag" "$(cat "$complained")"
    # A session of its own, so that all of it can be ended when BOX is a script around box.
    BOX_HOME=$home BOX_DESIRED=$folder ESCAPE_SECRET=$environment_flag \
        setsid "$box" watch "$folder" >"$out/watch.out" 2>"$out/watch.err" </dev/null &
    controller=$!
    find_vmms
    same "$(tr '\0' '\n' <"/proc/$controller/environ" | sed -n 's/^ESCAPE_SECRET=//p')" "$environment_flag" \
        "on the host, the environment of the controller holds its flag" control
    accelerator=$(field "$work/inspection" accelerator)
    printf 'the sandboxes run on %s (kvm: the processor; tcg: emulation)\n' "$accelerator"
    [ -z "${ESCAPE_ACCELERATOR-}" ] ||
        same "$accelerator" "$ESCAPE_ACCELERATOR" "the sandboxes run on what was asked for" control
}

# field FILE WORDS...: the value below these keys in a JSON file, nothing when it is not there.
field() {
    "$python" -I -c '
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value.get(key) if isinstance(value, dict) else None
print("" if value is None else value)
' "$@" 2>/dev/null
}

find_vmms() {
    run_box inspect "$sibling" -o json
    sibling_pid=$(field "$said" pid)
    run_box inspect "$name" -o json
    cp "$said" "$work/inspection"
    pid=$(field "$said" pid)
    [ -n "$pid" ] && [ -n "$sibling_pid" ] && return
    give_up "box names no running VMM" "$(cat "$said" "$complained")"
}

# gone PID SECONDS: wait until that process is over; false when it is not.
gone() {
    tries=$(($2 * 10))
    while kill -0 "$1" 2>/dev/null || [ -d "/proc/$1" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

end_child() {
    [ -z "$1" ] && return
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

end_controller() {
    [ -n "$controller" ] || return
    kill -s TERM -- "-$controller" 2>/dev/null
    wait "$controller" 2>/dev/null
    tries=100
    while kill -s 0 -- "-$controller" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.1; done
    controller=''
}

end_sandboxes() {
    run_box logs "$name" -o json
    run_box events -o json
    run_box events --verify
    same "$status" 0 "the chain of events is whole after all this" "I6"
    # The controller first: it would start them again.
    end_controller
    last=$(cat "$home"/run/*.json 2>/dev/null | tr ',' '\n' | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
    rm -f "$folder"/*.Boxfile
    run_box destroy --data "$name" && run_box destroy --data "$sibling"
    left=$(for each in $last; do gone "$each" 10 || echo "PID $each"; done
        ls -A "$home/run" "$home/runtime" | grep -v -e ':$' -e '^$' -e '\.tmp$')
    same "$status$left" 0 \
        "when the sandboxes are destroyed, nothing of them runs on" "H13"
}

clean_up() {
    trap '' HUP INT TERM
    trap - EXIT
    end_controller
    end_child "$listener"
    end_child "$witness"
    rm -f "$folder"/*.Boxfile
    for each in "$name" "$sibling"; do
        [ ! -d "$home/sandboxes/$each" ] || run_box destroy --data "$each"
    done
    if [ -n "$(ls -A "$home/run" 2>/dev/null)" ]; then
        echo "escape-test: a sandbox could not be destroyed; BOX_HOME=$home $box ls" >&2
        return
    fi
    rm -rf "$work"
}
