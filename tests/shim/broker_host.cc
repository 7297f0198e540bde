// SPDX-License-Identifier: Apache-2.0
// A broker for the tests in this folder: broker_host SOCKET [unlisted] TENANT:SPEC... It prints a line when it is
// ready, and ends when its standard input ends.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "broker/service.h"

int main(int argc, char** argv) {
  namespace broker = gpushare::broker;
  broker::Config config;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "unlisted") {
      config.unlisted = true;
      continue;
    }
    const size_t colon = text.find(':');
    broker::TenantConfig tenant;
    tenant.name = text.substr(0, colon);
    tenant.spec = text.substr(colon + 1);
    config.tenants.push_back(std::move(tenant));
  }
  broker::ServiceOptions options;
  options.socket = argc > 1 ? argv[1] : "";
  auto service = broker::Service::Create(config, std::move(options));
  if (!service.ok()) {
    std::fprintf(stderr, "%s\n", std::string(service.status().message()).c_str());
    return 1;
  }
  std::thread waits([&] {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    (*service)->Stop();
  });
  std::puts("ready");
  std::fflush(stdout);
  const absl::Status ended = (*service)->Run();
  waits.join();
  if (!ended.ok()) std::fprintf(stderr, "%s\n", std::string(ended.message()).c_str());
  return ended.ok() ? 0 : 1;
}
