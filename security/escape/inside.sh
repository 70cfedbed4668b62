# shellcheck shell=sh
# What attempts.sh, run in the guest, got hold of.

# told NAME: what the guest said of an attempt; "nothing" when it said nothing.
told() {
    sed -n "s/^$1 //p" "$work/told" | sed -n '1s/^$/none/;1s/ *$//;1p' | grep . || echo nothing
}

# refused ATTEMPT CONTROL SENTENCE CASES: the control worked in there, and the attempt did not.
refused() {
    if [ "$(told "$2")" != reached ]; then
        not_ok "$3" "$4" "the attempt shows nothing: its control $2 said $(told "$2")"
    else
        same "$(told "$1")" refused "$3" "$4"
    fi
}

# told_is ATTEMPT VALUE CONTROL VALUE SENTENCE CASES
told_is() {
    if [ "$(told "$3")" != "$4" ]; then
        not_ok "$5" "$6" "the attempt shows nothing: its control $3 said $(told "$3"), not $4"
    else
        same "$(told "$1")" "$2" "$5" "$6"
    fi
}

host_state() {
    cat /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname 2>/dev/null
}

# The host's clock set against the one that nobody can set, in seconds.
clock_offset() {
    printf '%s %s\n' "$(date +%s)" "$(cut -d' ' -f1 /proc/uptime)" | awk '{ printf "%d", $1 - $2 }'
}

images() {
    find "$home/images" "$home/kernels" "$home/initrd" -type f -exec sha256sum {} + | sort
}

try_inside() {
    state=$(host_state)
    offset=$(clock_offset)
    pristine=$(images)
    run_box cp "$here/attempts.sh" "$name:/tmp/attempts.sh" ||
        give_up "the attempts could not be copied in" "$(cat "$complained")"
    run_box exec --timeout 120 "$name" -- sh /tmp/attempts.sh "$port" "$abstract" "$flags"
    cp "$said" "$work/told"
    same "$(told end)" reached "the guest has made every attempt" control
    inside_network
    inside_files
    inside_disks
    inside_agent
    inside_kernel
}

inside_network() {
    refused loopback control.loopback \
        "the guest cannot reach the host's loopback, by 32 names and addresses" "J4 H11"
    told_is interfaces lo control.ping reached "the guest has no network but its own loopback" "H11"
    told_is routes 0 control.ping reached "the guest has no way to any network" "H11"
    refused interface.new control.ping "the guest cannot make itself a network interface" "H11"
    refused ping control.ping "the guest cannot ping a gateway of the host" "H11"
    refused unix.abstract control.mount "the guest does not see the host's abstract Unix socket" "J4"
    refused unix.path control.mount "the guest does not see the host's Unix socket with a path" "J4"
    refused vsock control.mount "the guest has no socket to the host" "H10"
}

inside_files() {
    at_least "$(told control.files)" 5 "the guest's ways to a path do lead to its own file" control
    told_is files 0 end reached "the guest cannot read a file of the host, by ten ways" "G1 J4"
    refused link control.mount "a link of the guest's to a file of the host leads nowhere" "G3"
    refused search control.mount "no path of the host is in the guest's tree" "J1"
    refused share control.mount "the guest finds no folder of the host to mount" "J1"
}

inside_disks() {
    told_is disks "vda vdb" control.node reached "the guest has two disks: its image and its /data" "J4"
    told_is nodes 0 control.node reached "the guest reaches no block device by a node of its own" "J4"
    told_is disk.flags 0 control.disk 1 "the guest finds nothing of its sibling on its disks" "I1"
    told_is disk.past 0 control.end reached "the guest cannot read past the end of /data" "H3"
    refused disk.past.write control.end "the guest cannot write past the end of /data" "H3"
    refused image.mount control.mount "no mount makes the guest's image writable" "J2"
    refused image.write control.end "the guest cannot write to its image" "J2"
    same "$(images)" "$pristine" "image, kernel and RAM disk are as they were, byte by byte" "J2 G2"
    run_box exec "$sibling" -- sh -c 'touch /tmp/yes && ls /tmp/yes
        for tried in 1 2; do touch /etc/no /bin/no /no && ls /etc/no; mount -o remount,rw /; done
        mount -t tmpfs none /etc && touch /etc/above && umount /etc; ls -A /no /bin/no /etc/no /etc/above'
    same "$(cat "$said")" /tmp/yes "a read-only root stays so, remounted or not" "J2"
    refused kvm control.node "the guest has no /dev/kvm" "J6"
}

inside_agent() {
    told_is nobody none control.nobody 65534 \
        "a user of the guest cannot touch the agent, its ports, the disks or the memory" "C14 I7"
    refused agent.write control.agent "the guest cannot write to the agent's program" "G2"
    refused agent.environment control.agent "the agent's environment holds no secret" "I11"
    refused environment control.agent "no environment in the guest holds a secret of the host's" "E5"
    refused cmdline control.agent "the guest kernel's command line holds no secret" "I11"
    guest 'echo alive'
    same "$(cat "$said")" alive "the agent lives on when the guest's root kills it" "J4"
}

inside_kernel() {
    told_is core_pattern '|/tmp/escape-core' end reached "the guest sets its own kernel's helpers" control
    same "$(host_state)" "$state" "the host's helpers and name are not the guest's to set" "G3 G5"
    told_is year 2031 end reached "the guest sets its own clock" control
    moved=$(($(clock_offset) - offset))
    at_most "${moved#-}" 2 "the host's clock is not the guest's to set" "G5"
}
