/* Sockets of every kind, and who could be called with them. */
#include "probe.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FAMILIES = 46 }; /* AF_MAX, linux/socket.h */

static long closed(int fd)
{
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

#define SOCKET(name, family, type, protocol)                                                       \
    static long socket_##name(const struct targets *on)                                            \
    {                                                                                              \
        (void)on;                                                                                  \
        return closed(socket(family, type, protocol));                                             \
    }

SOCKET(unix, AF_UNIX, SOCK_STREAM, 0)
SOCKET(tcp, AF_INET, SOCK_STREAM, 0)
SOCKET(udp, AF_INET, SOCK_DGRAM, 0)
SOCKET(tcp6, AF_INET6, SOCK_STREAM, 0)
SOCKET(raw, AF_INET, SOCK_RAW, IPPROTO_ICMP)
SOCKET(raw6, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)
SOCKET(packet, AF_PACKET, SOCK_RAW, 0)
SOCKET(netlink, AF_NETLINK, SOCK_RAW, 0)
SOCKET(uevent, AF_NETLINK, SOCK_RAW, 15) /* NETLINK_KOBJECT_UEVENT, linux/netlink.h */
SOCKET(netfilter, AF_NETLINK, SOCK_RAW, 12) /* NETLINK_NETFILTER */
SOCKET(vsock, AF_VSOCK, SOCK_STREAM, 0)
SOCKET(alg, AF_ALG, SOCK_SEQPACKET, 0)
SOCKET(key, AF_KEY, SOCK_RAW, 2)
SOCKET(xdp, 44, SOCK_RAW, 0) /* AF_XDP */

static long socket_any(const struct targets *on)
{
    static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM };
    long worked = 0;
    (void)on;
    for (int family = 0; family < FAMILIES; family++)
        for (size_t type = 0; type < sizeof types / sizeof *types; type++)
            if (closed(socket(family, types[type], 0)) == 0)
                worked++;
    return worked ? worked : -1;
}

static long socket_pair(const struct targets *on)
{
    int ends[2];
    (void)on;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        return -1;
    close(ends[0]);
    return closed(ends[1]);
}

static long called(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    long result = connect(fd, address, size);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static long call_unix(const char *name, int abstract)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t size = strnlen(name, sizeof address.sun_path - 2);
    memcpy(address.sun_path + (abstract ? 1 : 0), name, size);
    return called(AF_UNIX, &address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (abstract ? 1 : 0)));
}

static long call_ipv4(const char *text, long port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((in_port_t)port) };
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) {
        errno = ENOENT;
        return -1;
    }
    return called(AF_INET, &address, sizeof address);
}

static long call_ipv6(const char *text, long port)
{
    struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons((in_port_t)port) };
    inet_pton(AF_INET6, text, &address.sin6_addr);
    return called(AF_INET6, &address, sizeof address);
}

static long call_abstract(const struct targets *on) { return call_unix(on->abstract, 1); }
static long call_path(const struct targets *on) { return call_unix(on->socket, 0); }
static long call_loopback(const struct targets *on) { return call_ipv4("127.0.0.1", on->port); }
static long call_second(const struct targets *on) { return call_ipv4("127.0.0.2", on->port); }
static long call_any(const struct targets *on) { return call_ipv4("0.0.0.0", on->port); }
static long call_host(const struct targets *on) { return call_ipv4(on->address, on->port); }
static long call_six(const struct targets *on) { return call_ipv6("::1", on->port); }
static long call_six_any(const struct targets *on) { return call_ipv6("::", on->port); }
static long call_mapped(const struct targets *on) { return call_ipv6("::ffff:127.0.0.1", on->port); }

const struct attempt socket_attempts[] = {
    { "socket.unix", "make a Unix socket", 0, socket_unix },
    { "socket.pair", "make a pair of sockets", 0, socket_pair },
    { "socket.tcp", "make a TCP socket", 0, socket_tcp },
    { "socket.udp", "make a UDP socket", 0, socket_udp },
    { "socket.tcp6", "make a TCP socket of IPv6", 0, socket_tcp6 },
    { "socket.raw", "make a raw IPv4 socket", 0, socket_raw },
    { "socket.raw6", "make a raw IPv6 socket", 0, socket_raw6 },
    { "socket.packet", "make a socket below IP", 0, socket_packet },
    { "socket.netlink", "make a netlink socket", 0, socket_netlink },
    { "socket.uevent", "listen to the host's devices", 0, socket_uevent },
    { "socket.netfilter", "talk to the packet filter", 0, socket_netfilter },
    { "socket.vsock", "make a vsock socket", 0, socket_vsock },
    { "socket.alg", "make a socket of the kernel's ciphers", 0, socket_alg },
    { "socket.key", "make a socket of IPsec's keys", 0, socket_key },
    { "socket.xdp", "make an XDP socket", 0, socket_xdp },
    { "socket.any", "make a socket of any family and type", 0, socket_any },
    { "connect.abstract", "call an abstract Unix socket of the host", 0, call_abstract },
    { "connect.path", "call a Unix socket of the host by its path", 0, call_path },
    { "connect.loopback", "call the host at 127.0.0.1", 0, call_loopback },
    { "connect.loopback2", "call the host at 127.0.0.2", 0, call_second },
    { "connect.any", "call the host at 0.0.0.0", 0, call_any },
    { "connect.address", "call the host at an address of its network", 0, call_host },
    { "connect.loopback6", "call the host at ::1", 0, call_six },
    { "connect.any6", "call the host at ::", 0, call_six_any },
    { "connect.mapped", "call the host at ::ffff:127.0.0.1", 0, call_mapped },
    { 0 },
};
