#!/bin/sh
# Runs inside the guest, as root, with busybox alone. Says one line an attempt on stdout: its name
# and `reached`, `refused` or a value; whatever it gets hold of goes to stderr, where it is looked at.
#
# attempts.sh PORT ABSTRACT FLAGS
# shellcheck disable=SC2010,SC2012  # the names in /sys and /dev are the kernel's
port=$1 abstract=$2 flags=$3
other=$((port ^ 1)) # a port of the guest's own

say() { printf '%s %s\n' "$1" "$2"; }

# attempt NAME COMMAND...: reached when the command works.
attempt() {
    attempt=$1
    shift
    if timeout 5 "$@" </dev/null >&2; then say "$attempt" reached; else say "$attempt" refused; fi
}

# --- the host's loopback, by every name and address
addresses="127.0.0.1 127.0.1.1 127.1 127.255.255.254 0.0.0.0 ::1 ::ffff:127.0.0.1 localhost
    localhost.localdomain ip6-localhost host host.local host.docker.internal gateway.docker.internal
    host.containers.internal host.lima.internal 10.0.2.2 10.0.2.3 10.0.2.15 169.254.1.1 169.254.1.2
    169.254.169.254 172.17.0.1 192.168.0.1 192.168.1.1 192.168.122.1 192.168.127.1 192.168.127.254
    10.88.0.1 fe80::1 fec0::2 fd00::2"
try_addresses() {
    for address in $addresses; do
        timeout 2 nc -w 1 "$address" "$1" </dev/null 2>/dev/null | grep . && echo "at $address" >&2
    done
}
nc -ll -p "$other" -e echo control >/dev/null 2>&1 &
control=$!
until timeout 2 nc -w 1 127.0.0.1 "$other" </dev/null 2>/dev/null |
    grep -q control; do
    kill -0 $control || break
done
if try_addresses "$other" 2>/dev/null | grep -q control; then
    say control.loopback reached
else
    say control.loopback refused
fi
kill $control
if try_addresses "$port" >/tmp/answers 2>&1; then :; fi
cat /tmp/answers >&2
if [ -s /tmp/answers ]; then say loopback reached; else say loopback refused; fi
say interfaces "$(ls /sys/class/net | tr '\n' ' ')"
say routes "$(ip route 2>/dev/null | wc -l)"
attempt interface.new ip link add escape0 type veth peer name escape1
attempt ping ping -c 1 -W 1 10.0.2.2
attempt control.ping ping -c 1 -W 1 127.0.0.1
attempt unix.abstract grep -F "@$abstract" /proc/net/unix
attempt unix.path grep -F "$flags/socket" /proc/net/unix
attempt vsock test -e /dev/vsock

# --- the host's files, by their names and by ways around
mkdir -p "/tmp/control/flags"
echo control >/tmp/control/flags/readable
read_everywhere() {
    for prefix in '' /../../../.. /proc/1/root /proc/self/root/../../.. /proc/1/cwd/../.. \
        /proc/2/root /dev/fd/../../../.. /proc/self/cwd/../../../.. /mnt/.. /data/../../..; do
        for file in readable private; do
            cat "$prefix$1/$file" 2>/dev/null
        done
    done
}
say control.files "$(read_everywhere /tmp/control/flags | grep -c control)"
read_everywhere "$flags" >&2
say files "$(read_everywhere "$flags" | wc -l)"
ln -s "$flags/readable" /tmp/control/link
attempt link cat /tmp/control/link
attempt search sh -c 'find / -xdev -path "*box-escape-*" 2>/dev/null | grep .'
mkdir -p /tmp/mnt
attempt control.mount mount -t tmpfs none /tmp/mnt
umount /tmp/mnt
mount_shared() {
    for type in 9p virtiofs fuse vboxsf nfs cifs; do
        for source in host hostshare share shared myfs / "$flags"; do
            mount -t "$type" "$source" /tmp/mnt 2>/dev/null && return
        done
    done
    return 1
}
if mount_shared; then say share reached; else say share refused; fi

# --- disks
say disks "$(ls /sys/class/block | grep -v -e '^loop' -e '^ram' | tr '\n' ' ')"
echo ESCAPE-CONTROL >/data/control
sync
search_disk() { tr -d '\000' <"$1" 2>/dev/null | grep -c "$2"; }
say control.disk "$(search_disk /dev/vdb 'ESCAPE-CONTROL')"
tr -d '\000' </dev/vdb | grep 'BOX[F]LAG-' >&2
tr -d '\000' </dev/vda | grep 'BOX[F]LAG-' >&2
say disk.flags $(($(search_disk /dev/vdb 'BOX[F]LAG-') + $(search_disk /dev/vda 'BOX[F]LAG-')))
sectors=$(cat /sys/class/block/vdb/size)
attempt control.end dd if=/dev/vdb bs=512 skip=$((sectors - 1)) count=1 of=/tmp/last
say disk.past "$(dd if=/dev/vdb bs=512 skip="$sectors" count=1 2>/dev/null | wc -c)"
attempt disk.past.write dd if=/dev/zero of=/dev/vdb bs=512 seek="$sectors" count=1 conv=fsync,notrunc
blockdev --setrw /dev/vda 2>/dev/null
attempt image.mount sh -c 'mount -o rw /dev/vda /tmp/mnt && touch /tmp/mnt/escaped'
umount /tmp/mnt 2>/dev/null
attempt image.write dd if=/dev/zero of=/dev/vda bs=512 count=1 seek=8 conv=fsync,notrunc
# shellcheck disable=SC2046  # two words
mknod /tmp/vdb b $(sed 's/:/ /' /sys/class/block/vdb/dev)
attempt control.node dd if=/tmp/vdb bs=512 count=1 of=/dev/null
found=0
for major in 3 8 9 11 22 65 179 202 252 253 259; do
    for minor in 0 1; do
        mknod /tmp/node b $major $minor
        dd if=/tmp/node bs=512 count=1 2>/dev/null | grep -q . && found=$((found + 1))
        rm -f /tmp/node
    done
done
say nodes $found
attempt kvm test -c /dev/kvm

# --- the agent
say ports "$(ls /dev/vport* 2>/dev/null | wc -l)"
attempt control.agent sh -c 'ls /proc/1/fd | grep .'
as_nobody() {
    for target in /dev/vport* /dev/vda /dev/vdb /dev/mem /dev/port /proc/1/mem /proc/1/environ /proc/kcore; do
        su nobody -s /bin/sh -c "cat <$target | head -c 1" 2>/dev/null | grep -q . && echo "$target"
        su nobody -s /bin/sh -c "exec 3>>$target" 2>/dev/null && echo "$target"
    done
    su nobody -s /bin/sh -c 'ls /proc/1/fd/' 2>/dev/null && echo fd
}
say control.nobody "$(su nobody -s /bin/sh -c 'id -u')"
say nobody "$(as_nobody | tr '\n' ' ')"
attempt agent.write sh -c 'echo x >/proc/1/exe'
kill -9 1
attempt agent.environment sh -c "tr '\\0' '\\n' </proc/1/environ | grep -i -e token -e 'BOX[F]LAG'"
attempt environment sh -c "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -e SECRET -e 'BOX[F]LAG'"
attempt cmdline grep -e token -e 'BOX[F]LAG' /proc/cmdline

# --- the kernel's own doors: the guest may open them, and they lead nowhere but into the guest
echo '|/tmp/escape-core' >/proc/sys/kernel/core_pattern
echo /tmp/escape-helper >/proc/sys/kernel/modprobe
hostname escaped
date -s '2031-02-03 04:05:06' >/dev/null
say core_pattern "$(cat /proc/sys/kernel/core_pattern)"
say modprobe "$(cat /proc/sys/kernel/modprobe)"
say hostname "$(hostname)"
say year "$(date +%Y)"
say end reached
