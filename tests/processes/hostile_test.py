#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that flood the broker's socket, or send what makes it wait: its memory stays bounded, and connected programs are served."""

import array
import errno
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from node import COMMAND, PATIENCE, Asks, Node

CONNECTIONS = 10_000
MIB = 1 << 20


class Flood(Node):
    HELLO = 1

    def setUp(self):
        super().setUp()
        self.held = []
        self.addCleanup(self.let_go)

    def let_go(self):
        for each in self.held:
            each.close()
        self.held.clear()

    def flood(self, *packets):
        """Opens CONNECTIONS connections that send `packets` and never read. Those that the broker closes stay open on this side."""
        for _ in range(CONNECTIONS):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # The broker accepts without waiting, so a client may have to wait until it is accepted.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE, 0))
            one.connect(self.socket)
            one.setblocking(False)
            for packet in packets:
                try:
                    one.send(packet)
                except OSError as error:
                    self.assertIn(error.errno, (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN))
            self.held.append(one)

    def floods(self, *packets):
        """Floods the broker twice. Returns the growth of its memory."""
        stays = self.start_victim("stays")
        self.eventually(lambda: self.launches() > 0)
        broker = self.asks()  # connected beforehand, since later connections are over the limit
        launches = [broker.share("stays")["launches"]]
        memory, descriptors = self.memory(), self.descriptors()
        for _ in range(2):
            self.flood(*packets)
            launches.append(broker.share("stays")["launches"])
            self.assertGreater(launches[-1], launches[-2], "nobody was served")
            self.assertIsNone(stays.poll())
            grown = self.memory() - memory, self.descriptors() - descriptors
            print(f"{CONNECTIONS} connections: {grown[0] / MIB:.1f} MiB and {grown[1]} descriptors more; meanwhile"
                  f" {launches[-1] - launches[-2]} launches", file=sys.stderr)
            # As many connections as one user may have, and room for a few that are being set up.
            self.assertLessEqual(grown[1], 2 * 1024 + 64)
            self.let_go()
        self.eventually(lambda: self.descriptors() <= descriptors + 8)
        # Another program can still register.
        comes = self.start_victim("dies")
        self.eventually(lambda: self.launches("dies") > 0)
        self.assertIsNone(comes.poll())
        return grown[0]

    def packet(self, kind, *texts):
        body = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return struct.pack("<HH", kind, 2) + body

    def test_of_those_that_say_nothing(self):
        self.assertLess(self.floods(), 8 * MIB)

    def test_of_those_that_register(self):
        self.assertLess(self.floods(self.packet(self.HELLO, b"dies", b"flood", b"") + bytes(8)), 16 * MIB)

    def test_of_those_that_ask_and_do_not_read(self):
        # Unread answers are limited to 64 MiB in total.
        ask = self.packet(Asks.QUERY, b"list")
        self.assertLess(self.floods(*[ask] * 64), 80 * MIB)


class Descriptors(Node):
    """A socket that keeps waiting whoever closes it last, given to the broker."""

    LINGER = 30  # seconds

    def lingering(self):
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        self.addCleanup(theirs.close)
        self.addCleanup(listener.close)
        ours.setblocking(False)
        try:
            while True:
                ours.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, self.LINGER))
        return ours

    def test_the_broker_waits_for_the_close_of_none(self):
        stays = self.start_victim("stays")
        self.eventually(lambda: self.launches() > 0)
        began = time.monotonic()
        # After a packet that ends the connection, so that the rest stays unread; and as the first packet.
        for packets in ([b"no packet"], []):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer, self.lingering() as lingers:
                self.broker.send_signal(signal.SIGSTOP)
                peer.connect(self.socket)
                for packet in packets:
                    peer.send(packet)
                peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lingers.fileno()]))])
            self.broker.send_signal(signal.SIGCONT)
            subprocess.run([COMMAND, "list", "--socket", self.socket], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        self.assert_goes_on([stays])
        self.assertLess(time.monotonic() - began, self.LINGER / 2)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CONNECTIONS + 100:
        print("skipped: no more descriptors than", resource.getrlimit(resource.RLIMIT_NOFILE)[0], file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv)
