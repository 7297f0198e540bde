// SPDX-License-Identifier: Apache-2.0
// Whether a process lives where the broker does, or in a container.
#ifndef GPUSHARE_BROKER_NAMESPACE_H_
#define GPUSHARE_BROKER_NAMESPACE_H_

#include "ipc/socket.h"

namespace gpushare::broker {

// In the same PID namespace, by /proc: there it has one number and no other. False where that cannot be told, and of one
// that has ended, whose number may be another's by now.
bool IsBeside(const ipc::Peer& peer);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_NAMESPACE_H_
