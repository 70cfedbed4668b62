# shellcheck shell=sh
# What a guest uses up is its own: processes, memory, disk, console, our memory and our patience.

try_exhaustion() {
    fork_bomb
    memory_hog
    data_fill
    console_flood
    output_flood
    leftovers
}

# answers SENTENCE CASES: the guest still takes a command and does it.
answers() {
    guest 'echo alive'
    same "$(cat "$said")" alive "$1" "$2"
}

# Sample a number of the VMM while a child runs; the largest is in $most.
most_while() {
    most=0
    while kill -0 "$1" 2>/dev/null; do
        now=$(kib "$pid" "$2")
        [ "$now" -le "$most" ] || most=$now
        sleep 0.1
    done
    wait "$1"
    child_status=$?
}

fork_bomb() {
    before=$(kib "$pid" Threads)
    limit=12 in_background '
        i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i + 1)); done
        ls -d /proc/[0-9]* | wc -l
        bomb() { bomb | bomb & }; bomb; sleep 60'
    bomb=$said
    most_while "$child" Threads
    at_least "$(head -n 1 "$bomb")" 100 "a fork bomb goes off in the guest" control
    same "$child_status" 124 "a fork bomb ends with its command's time limit" "H1"
    at_most "$most" "$((before + 32))" "a fork bomb in the guest is no process and no thread here" "H1"
    answers "after a fork bomb the guest takes the next command" "H1"
}

memory_hog() {
    limit=90 guest 'dmesg -c >/dev/null
        for i in 1 2 3; do tail -c 60000000 /dev/zero >/dev/null & done
        until dmesg | grep -q -i "out of memory"; do sleep 0.2; done; echo ended'
    same "$(cat "$said")" ended "the guest's own kernel ends what takes too much memory" "H8"
    at_most "$(kib "$pid" VmHWM)" "$(((ram_mib + 256) * 1024))" \
        "the VMM has never had more memory than its limit" "H8"
    answers "after that the guest takes the next command" "H8"
}

data_fill() {
    disk=$home/sandboxes/$name/data.img
    size=$(stat -c %s "$disk")
    room=$(du -sk "$home" | cut -f1)
    limit=90 guest 'dd if=/dev/zero of=/data/fill bs=1M 2>&1 | grep -c "No space"; sync
        rm /data/fill; mkdir /data/many; cd /data/many; touch $(seq 6000) 2>&1 | grep -c "No space"'
    at_least "$(head -n 1 "$said")" 1 "the guest fills /data until its kernel says so" control
    at_least "$(sed -n 2p "$said")" 1 "the guest makes files in /data until its kernel says so" control
    same "$(stat -c %s "$disk")" "$size" "a full /data is not a byte larger than declared" "H3"
    at_most "$(du -k "$disk" | cut -f1)" "$((data_mib * 1024 + 64))" \
        "a full /data takes no more room of the host than declared" "H3 H4"
    at_most "$(du -sk "$home" | cut -f1)" "$((room + data_mib * 1024 + 1024))" \
        "the host keeps its room" "H3"
    guest 'rm -rf /data/many; echo ok >/data/again && cat /data/again'
    same "$(cat "$said")" ok "after that /data can be used again" "H3"
}

console_flood() {
    room=$(du -sk "$home" | cut -f1)
    rss=$(kib "$pid" VmRSS)
    ours=$(kib "$controller" VmRSS)
    limit=60 guest 'timeout 2 yes "a line that fills a console, again and again and again" >/dev/console
        dmesg -n 8; echo flooded'
    same "$(tail -n 1 "$said")" flooded "the guest floods its console for two seconds" control
    at_most "$(du -sk "$home" | cut -f1)" "$((room + 4096))" "a flood on the console fills no disk" "H5"
    at_most "$(kib "$pid" VmRSS)" "$((rss + 32768))" "a flood on the console fills no memory of the VMM" "H5"
    at_most "$(kib "$controller" VmRSS)" "$((ours + 32768))" \
        "a flood on the console fills no memory of the controller" "H5"
    run_box logs "$name" --console
    at_most "$(stat -c %s "$said")" 4194304 "what is kept of a flooded console is bounded" "H5 H6"
    answers "after a flood on the console the guest takes the next command" "H5"
}

output_flood() {
    mkfifo "$work/stopped"
    BOX_HOME=$home BOX_DESIRED=$folder "$box" exec "$name" -- yes \
        >"$work/stopped" 2>"$out/flood.err" </dev/null &
    flood=$!
    # Opened, read once and never again.
    exec 7<"$work/stopped"
    head -c 1 <&7 >/dev/null
    guest 'sleep 1; echo alive'
    same "$(cat "$said")" alive "who does not read a flood of output holds up no other command" "H7 H10"
    at_most "$(kib "$flood" VmHWM)" 131072 "a flood of output stays out of the memory of box" "H7"
    kill -0 "$flood" 2>/dev/null && waits=yes
    is "${waits-no}" "the flood waits for its reader" control "$(cat "$out/flood.err")"
    exec 7<&-
    gone "$flood" 30 && ended=yes
    is "${ended-no}" "the flood ends when its reader is gone" "H7"
    [ "${ended-no}" = yes ] || kill -9 "$flood"
    wait "$flood" 2>/dev/null
    rm "$work/stopped"
}

leftovers() {
    limit=1 guest 'setsid sleep 4711 & (trap "" HUP INT TERM; setsid sh -c "trap \"\" TERM; sleep 4712") &
        for i in 1 2 3; do sh -c "sleep 0 & exec sleep 4713" & done; sleep 4714'
    same "$status" 124 "a command that leaves children of all kinds ends in time" "H13"
    run_box ps "$name"
    is "$(grep -q . "$said" && ! grep -q 'sleep.*471[1-4]' "$said" && echo yes)" \
        "no child of it lives on, in whatever session, and none is a zombie" "H13" \
        "$(grep 'sleep' "$said")"
}
