#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A broker that is killed and restarted while its processes hold memory: by the simulated GPU's own count, their tenant never has more
than its quota, and no process loses its memory."""

import os
import signal
import sys
import threading
import unittest

from node import ALLOCATES, OK, OUT_OF_MEMORY, Node

QUOTA = 1024  # MiB


class Restarts(Node):
    TENANTS = f"  - {{name: a, spec: 'memory={QUOTA}MiB'}}\n"
    AFTER = None

    def setUp(self):
        super().setUp()
        self.witness = self.program(ALLOCATES, self.bare)
        self.before = self.witness("used()")
        self.first = self.program(ALLOCATES, self.of_tenant("a"))
        self.context = self.witness("used()") - self.before
        self.programs = 1

    def another(self):
        self.programs += 1
        return self.program(ALLOCATES, self.of_tenant("a"))

    def assert_within_quota(self):
        held = self.witness("used()") - self.before - self.programs * self.context
        self.assertLessEqual(held, QUOTA)
        return held

    def test_nobody_gets_what_one_holds_that_is_not_back_yet(self):
        second = self.another()
        self.assertEqual((self.first("alloc(700)"), second("alloc(100)")), (OK, OK))
        for program in (self.first, second):
            program.process.send_signal(signal.SIGSTOP)
        self.restart_broker()
        third = self.another()
        self.assertEqual(third("alloc(900)"), OUT_OF_MEMORY)
        self.assertEqual(self.assert_within_quota(), 800)
        # One process is back and the other is not; all memory that the absent one may hold is reserved for it.
        second.process.send_signal(signal.SIGCONT)
        self.eventually(lambda: third("alloc(5)") == OK)
        self.assertEqual(second("alloc(300)"), OUT_OF_MEMORY)
        self.assertEqual(self.assert_within_quota(), 805)
        self.first.process.send_signal(signal.SIGCONT)
        self.eventually(lambda: sum(not each["gone"] for each in self.share("a")["processes"]) == 3)
        self.assertEqual(self.first("alloc(50)"), OK, "it has what it had, and what is left")
        self.assertEqual((third("alloc(100)"), third("alloc(100)")), (OK, OUT_OF_MEMORY))
        self.assertEqual(self.assert_within_quota(), 955)

    def test_processes_that_race_for_the_quota_do_not_pass_it(self):
        # Each holds up to two pieces, which are far more together, and gives one back where it is refused another.
        next_piece = "(lambda got: (got, held and (got != 0 or len(held) > 1) and cuda.cuMemFree_v2(held.pop(0)))[0])(alloc(mib))"
        races = f"[{next_piece} for _ in range(1500) for mib in (390, 50, 200)].count(0)"
        programs = [self.first, self.another(), self.another(), self.another()]
        had = []
        threads = [threading.Thread(target=lambda program=program: had.append(program(races))) for program in programs]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, self.assert_within_quota())
        for thread in threads:
            thread.join()
        self.assertGreater(most, QUOTA - 200, "they did not race")
        self.assertGreater(min(had), 1500, "one had hardly anything")

    def test_again_and_again_near_the_quota(self):
        second = self.another()
        self.assertEqual((self.first("alloc(600)"), second("alloc(400)")), (OK, OK))
        for _ in range(5):
            self.restart_broker()
            for program in (self.first, second):
                self.assertEqual(program("alloc(100)"), OUT_OF_MEMORY)
            self.assertEqual(self.assert_within_quota(), 1000)
        # The memory of a process that ends while there is no broker is available to the others.
        self.restart_broker(second.end)
        self.programs -= 1
        self.eventually(lambda: self.first("alloc(400)") == OK)
        self.assertEqual(self.assert_within_quota(), 1000)

    # It was admitted as root, and nobody else may register as this tenant.
    def test_a_process_that_has_dropped_its_privileges_goes_on_and_comes_back(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        os.chmod(self.folder.name, 0o755)
        self.assertEqual(self.first("alloc(300)"), OK)
        self.assertEqual(self.first("os.setuid(65534) or 0"), 0)
        self.assertEqual(self.first("alloc(300)"), OK)
        with open(self.config, "w") as file:
            file.write(f"tenants: [{{name: a, spec: 'memory={QUOTA}MiB', users: [0]}}]\n")
        self.restart_broker()
        self.eventually(lambda: [each["gone"] for each in self.share("a")["processes"]] == [False])
        self.assertEqual(self.share("a")["processes"][0]["uid"], 65534)
        self.assertEqual((self.first("alloc(300)"), self.first("alloc(200)")), (OK, OUT_OF_MEMORY))
        self.assertEqual(self.assert_within_quota(), 900)
        second = self.another()
        self.assertEqual((second("alloc(100)"), second("alloc(100)")), (OK, OUT_OF_MEMORY))
        self.first.end()
        self.programs -= 1
        self.eventually(lambda: second("alloc(900)") == OK)


# All of that, while the clock of the day is set back and forth by a day between any two looks at it. A wait until a time of that
# clock would end at once, or hang for a day.
class ClockJumps(Restarts):
    PRELOADED = [os.environ["GPUSHARE_CLOCK_JUMPS"]]

    def test_the_programs_see_it_jump(self):
        for _ in range(3):
            self.assertEqual(self.first("int(abs(time.time() - time.time()) > 86400)"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
