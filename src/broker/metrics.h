// SPDX-License-Identifier: Apache-2.0
// A snapshot as Prometheus metrics, and the address at which they are served.
//
//   MetricsServer server;
//   GPUSHARE_RETURN_IF_ERROR(server.Listen("127.0.0.1:9410", [&] { return service.TakeSnapshot(); }));
//
// docs/broker.md lists the metrics.
#ifndef GPUSHARE_BROKER_METRICS_H_
#define GPUSHARE_BROKER_METRICS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "broker/snapshot.h"

namespace gpushare::broker {

// Prometheus' text format, as /metrics answers it.
std::string ToPrometheus(const Snapshot& snapshot);

// Serves /metrics by HTTP on threads of its own until it is destroyed.
class MetricsServer {
 public:
  // Called on any of its threads, whenever somebody asks.
  using Source = std::function<Snapshot()>;

  // `address` as ParseAddress() gives it. Unavailable: it cannot be listened at.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const std::string& address,
                                                               Source source);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  struct Parts;
  MetricsServer(std::unique_ptr<Parts> parts, int port);

  const std::unique_ptr<Parts> parts_;
  const int port_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_METRICS_H_
