# shellcheck shell=sh
# Links through `box cp`, both ways, and names that would drive a terminal.

canary_state() { find "$work/canary" -printf '%P %m %T@ %s\n' | sort && cat "$work/canary/file"; }

try_copies() {
    mkdir "$work/canary" "$work/in" "$work/tree"
    echo untouched >"$work/canary/file"
    canary=$(canary_state)
    copies_out
    copies_in
    hostile_names
}

copies_out() {
    guest "mkdir -p /tmp/out && cd /tmp/out && ln -s $flags/private file && ln -s $work/canary dir &&
        ln -s ../../../../../../../..$flags/private up && mkfifo pipe && mknod disk b 7 0"
    same "$status" 0 "the guest plants links, a pipe and a device to be copied out" control
    run_box cp "$name:/tmp/out" "$work/in"
    [ -L "$work/in/out/file" ] && [ -L "$work/in/out/dir" ] && [ -L "$work/in/out/up" ] && links=yes
    is "${links-no}" "links of the guest arrive as links and are not followed" "B1" "$(cat "$complained")"
    special=$(find "$work/in" ! -type f ! -type d ! -type l)
    same "$special" '' "no pipe and no device of the guest's arrives" "B2 A15"
    # The second copy brings a folder where the first one brought a link that leads away from here.
    guest "cd /tmp/out && rm dir pipe disk && mkdir dir && echo written >dir/file && echo written >dir/new"
    same "$status" 0 "the guest puts a folder in a link's place" control
    run_box cp "$name:/tmp/out" "$work/in"
    run_box cp "$name:/tmp/out/." "$work/in/out"
    same "$(canary_state)" "$canary" "a second copy does not write through a link of the first" "A3 G9"
    guest "cd /tmp && rm -rf out && mkdir out && ln -s $work/canary/new out/f"
    run_box cp "$name:/tmp/out/f" "$work/in/away"
    run_box cp "$name:/tmp/../../../../..$flags/private" "$work/in/climbed"
    is "$([ "$status" = 0 ] || echo yes)" "a path that climbs out of the guest leads nowhere" "E11" \
        "$(cat "$said")"
    same "$(canary_state)" "$canary" "nothing beside the destination is touched" "A3 B1"
    copied=$(grep -rl BOXFLAG- "$work/in" 2>/dev/null)
    same "$copied" '' "no copy holds a file of the host" "B1"
}

copies_in() {
    ln -s "$flags/private" "$work/tree/link"
    echo plain >"$work/tree/plain"
    guest 'rm -rf /tmp/in && mkdir /tmp/in && ln -s /proc/1 /tmp/in/away'
    run_box cp "$work/tree" "$name:/tmp/in"
    same "$status" 0 "a folder with a link to a secret is copied in" control
    guest 'cat /tmp/in/tree/plain; cat /tmp/in/tree/link; readlink /tmp/in/tree/link'
    same "$(cat "$said")" "plain
$flags/private" "a link below what is copied in is copied as a link, not as what it names" "B1"
    run_box cp "$work/tree/plain" "$name:/tmp/in/away/environ"
    guest 'echo alive'
    same "$(cat "$said")" alive "a link in the guest cannot lead a copy into the agent" "A3"
}

# control_bytes FILES...: how many bytes a terminal would obey.
control_bytes() { cat "$@" | tr -d '\11\12\40-\176\200-\377' | wc -c; }

hostile_names() {
    in_background 'cd /tmp; mkdir names; n=$(printf "names/\033]0;owned\007\033[2J\r")
        printf "#!/bin/sh\nsleep 30\n" >"$n.sh"; chmod +x "$n.sh"; mkfifo "$n.pipe"
        printf "\033]0;owned\007\033[2J\r\n" >/dev/console; exec "./$n.sh"'
    tries=50
    until run_box ps "$name" && grep -q owned "$said" || [ $((tries -= 1)) -le 0 ]; do :; done
    is "$(grep -q owned "$said" && echo yes)" "box ps lists a process whose name has terminal escapes" \
        control "$(cat "$said" "$complained")"
    same "$(control_bytes "$said" "$complained")" 0 "box ps escapes names that would drive a terminal" "A28 C10"
    run_box logs "$name" --console
    is "$(grep -q owned "$said" && echo yes)" "box logs --console shows what the guest printed" control \
        "$(cat "$said" "$complained")"
    same "$(control_bytes "$said" "$complained")" 0 "box logs escapes what would drive a terminal" "C10 H5"
    run_box cp "$name:/tmp/names" "$work/in"
    is "$(grep -q owned "$complained" && echo yes)" "box cp says which file it has left out" control \
        "$(cat "$said" "$complained")"
    same "$(control_bytes "$said" "$complained")" 0 "box cp escapes names that would drive a terminal" "A28 C10"
    run_box logs "$name"
    same "$(control_bytes "$said" "$complained")" 0 "the log of commands escapes what was run" "C10"
    end_child "$child"
}
