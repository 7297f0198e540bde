# SPDX-License-Identifier: Apache-2.0
"""A module that uses the GPU during its import, before any constructor runs."""

import program

program.context()
TOTAL = int(program.d.cuMemGetInfo()[2])
