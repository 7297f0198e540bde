#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who floods the broker's socket: the broker's memory stays bounded, and who is there is served."""

import errno
import resource
import socket
import struct
import sys
import unittest

from node import PATIENCE, Asks, Node

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
        """So many connections, each of which sends these and never reads; those that the broker ends are kept open here."""
        for _ in range(CONNECTIONS):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # The broker does not wait for anybody; who comes waits for its turn to be let in.
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
        """What the broker's memory and descriptors came to, beyond what it had before."""
        stays = self.start_victim("stays")
        self.eventually(lambda: self.launches() > 0)
        broker = Asks(self.socket)  # connected before: who comes now is one of too many
        self.addCleanup(broker.socket.close)
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
            # As many as one user may have, with room for a few that are on their way.
            self.assertLessEqual(grown[1], 2 * 1024 + 64)
            self.let_go()
        self.eventually(lambda: self.descriptors() <= descriptors + 8)
        # And somebody else may come.
        comes = self.start_victim("dies")
        self.eventually(lambda: self.launches("dies") > 0)
        self.assertIsNone(comes.poll())
        return grown[0]

    def packet(self, kind, *texts):
        body = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return struct.pack("<HH", kind, 1) + body

    def test_of_those_that_say_nothing(self):
        self.assertLess(self.floods(), 8 * MIB)

    def test_of_those_that_register(self):
        self.assertLess(self.floods(self.packet(self.HELLO, b"dies", b"flood", b"")), 16 * MIB)

    def test_of_those_that_ask_and_do_not_read(self):
        # Answers that nobody takes have a bound of 64 MiB.
        ask = self.packet(Asks.QUERY, b"list")
        self.assertLess(self.floods(*[ask] * 64), 80 * MIB)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CONNECTIONS + 100:
        print("skipped: no more descriptors than", resource.getrlimit(resource.RLIMIT_NOFILE)[0], file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv)
