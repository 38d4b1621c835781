"""This machine's address and network interface, as the other machines of a run see them."""

import fcntl
import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path

SIOCGIFADDR = 0x8915
"""The request for an interface's IPv4 address (Linux, `netdevice(7)`)."""
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and last port that the kernel assigns to connections (Linux, `ip(7)`)."""
FIRST, LAST = 20_000, 29_499
"""Ports where the processes of a run meet (ours): torchrun and DeepSpeed use 29500, Kubernetes others."""


def address_towards(host: str, *, family: int = socket.AF_UNSPEC) -> str:
    """The address by which a host reaches this machine, from the route to it; no packet is sent.

    The machine's own name will not do: it often resolves to a loopback address.

    Raises:
        OSError: If there is no route, or the host is unknown.
    """
    kind, _, _, _, there = socket.getaddrinfo(host, 9, family=family, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(there)
        return str(probe.getsockname()[0])


def free_port() -> int:
    """A TCP port that is currently unused on all addresses of this machine.

    If possible it lies outside the range that the kernel assigns to connections: the listener imports torch
    first, and in these seconds a connection of another program could take the port.
    """
    first = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else FIRST
    below = range(FIRST, min(first, LAST + 1))
    # Not from the run's own random numbers: all runs with the same seed would choose the same port.
    for port in random.SystemRandom().sample(below, min(len(below), 64)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def name_interface(master: str) -> None:
    """Make gloo use the interface of the route to `master`, unless `GLOO_SOCKET_IFNAME` is set.

    By default it uses the interface of the machine's own name, often the loopback, where processes on other
    machines cannot reach it. If `master` has no IPv4 address, the choice is left to gloo.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        address = address_towards(master, family=socket.AF_INET)
    except socket.gaierror:
        return
    name = _interface(address)
    if name is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = name


def _interface(address: str) -> str | None:
    """The interface that has the given IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None
