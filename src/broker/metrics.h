// SPDX-License-Identifier: Apache-2.0
// Snapshots as Prometheus metrics, and the server for them.
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

// The snapshot in Prometheus' text format, as served at /metrics.
std::string ToPrometheus(const Snapshot& snapshot);

// Serves /metrics by HTTP on its own threads until it is destroyed.
class MetricsServer {
 public:
  // Called on any of the server's threads, at each request.
  using Source = std::function<Snapshot()>;

  // `address` comes from ParseAddress(). Unavailable: the server cannot listen there.
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
