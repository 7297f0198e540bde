// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_SNAPSHOT_H_
#define GPUSHARE_PYTHON_SNAPSHOT_H_

#include <pybind11/pybind11.h>

#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// Makes a gpushare.VirtualDeviceStats.
pybind11::object ToPython(const gpushare_vdev_stats& stats);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_SNAPSHOT_H_
