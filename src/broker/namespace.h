// SPDX-License-Identifier: Apache-2.0
// Tells whether a process lives in the broker's PID namespace or in a container.
#ifndef GPUSHARE_BROKER_NAMESPACE_H_
#define GPUSHARE_BROKER_NAMESPACE_H_

#include "ipc/socket.h"

namespace gpushare::broker {

// Whether the peer is in the broker's PID namespace: then /proc shows a single pid for it. False if that cannot be told, or
// if the process has ended, since its pid may have been reused.
bool IsBeside(const ipc::Peer& peer);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_NAMESPACE_H_
