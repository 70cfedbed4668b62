# shellcheck shell=sh
# After everything: what was planted is in nothing that was said.

# holding FILE: the files of all that was collected in which a line of FILE stands.
holding() {
    [ -s "$1" ] || {
        echo "$1 is empty"
        return
    }
    grep -r -l -a -F -f "$1" "$out" "$work/in" "$home/events.jsonl" "$home/run" "$home/sandboxes" \
        --include='*' --exclude='*.img' 2>/dev/null
}

look_for_flags() {
    end_child "$witness"
    witness=''
    same "$(grep -l -F -f "$work/all" "$work/sibling-flag")" "$work/sibling-flag" \
        "the search finds a flag where one is" control
    for each in readable private sibling tcp path abstract environment; do
        grep -e "-$each-" "$work/all" >"$work/one"
        case $each in
        readable) what="the file that all may read" ;;
        private) what="the file that only its user may read" ;;
        sibling) what="the sibling's /data" ;;
        tcp) what="the TCP listener on the host's loopback" ;;
        path) what="the Unix socket with a path" ;;
        abstract) what="the abstract Unix socket" ;;
        environment) what="the environment of box" ;;
        esac
        same "$(holding "$work/one")" '' "the flag of $what is in no output, log, event or command line" "J4 I11"
    done
    at_least "$(wc -l <"$work/tokens")" 2 "the tokens of both sandboxes are known to the search" control
    at_least "$(grep -c qemu-system "$out/argv")" 2 "the command lines of all processes were kept" control
    same "$(holding_token)" '' "no agent's token is in any output, log, event or command line" "C8 I11"
}

# The VMs' records are where tokens are kept, for the owner alone.
holding_token() { holding "$work/tokens" | grep -v '/run/[^/]*\.json$'; }
