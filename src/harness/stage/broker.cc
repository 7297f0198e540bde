// SPDX-License-Identifier: Apache-2.0
// A broker on the driver that GPUSHARE_DRIVER names. It uses that driver's clock, so that its grants on the simulated GPU are the
// same in every run.
//
//   GPUSHARE_SIM=shared=NAME,processes=3,place=0 broker PARENT SOCKET TENANT SPEC [--within TENANT] [TENANT SPEC]... [--floor PART]
//
// `--within` names the parent of the tenant before it. Creates SOCKET.ready when it accepts connections. Ends when the last of its processes ends, or when its parent, process PARENT,
// does.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "base/env.h"
#include "broker/host.h"
#include "broker/service.h"
#include "harness/stage/parent.h"
#include "ipc/socket.h"
#include "spec/text.h"

int main(int argc, char** argv) {
  using namespace gpushare;
  if (argc < 5 || argc % 2 == 0 || !harness::EndWithParent(argv[1])) return 2;
  // Listens before opening the GPU, which waits for all of its processes: so none of them is refused.
  absl::StatusOr<ipc::Listener> listener = ipc::Listener::At(argv[2], 0600);
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
    return 1;
  }
  // The socket's file exists a moment before it accepts connections, so another file tells.
  std::ofstream(std::string(argv[2]) + ".ready").put('1');
  absl::StatusOr<broker::Host> host =
      broker::OpenHost(base::GetEnv("GPUSHARE_DRIVER").value_or("sim"));
  if (!host.ok()) {
    std::fprintf(stderr, "%s\n", host.status().ToString().c_str());
    return 1;
  }
  broker::Config config;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--floor") {
      config.floor = spec::ParseShare(argv[i + 1]).value_or(0);
      continue;
    }
    if (std::string(argv[i]) == "--within") {
      if (config.tenants.empty()) return 2;
      config.tenants.back().parent = argv[i + 1];
      continue;
    }
    config.tenants.emplace_back();
    config.tenants.back().name = argv[i];
    config.tenants.back().spec = argv[i + 1];
  }
  broker::ServiceOptions options;
  options.listener = std::make_unique<ipc::Listener>(*std::move(listener));
  options.gpus = host->gpus;
  options.clock = &host->clock();
  options.until_unused = true;
  absl::StatusOr<std::unique_ptr<broker::Service>> service =
      broker::Service::Create(config, std::move(options));
  absl::Status ended = service.status();
  if (service.ok()) {
    host->clock().StartThread("broker", [&] { ended = (*service)->Run(); })->Join();
  }
  if (ended.ok()) return 0;
  std::fprintf(stderr, "%s\n", ended.ToString().c_str());
  return 1;
}
