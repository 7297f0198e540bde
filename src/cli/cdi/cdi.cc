// SPDX-License-Identifier: Apache-2.0
#include "cli/cdi/cdi.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "cli/broker/ask.h"
#include "cli/broker/daemon.h"
#include "cli/output.h"
#include "cli/run/preload_object.h"
#include "gpushare/version.h"

namespace gpushare::cli {
namespace {

// The oldest CDI version with everything used here. Engines for later versions accept it, and so do older ones.
constexpr char kCdiVersion[] = "0.5.0";
constexpr char kKind[] = "gpushare.dev/vgpu";
constexpr char kInContainer[] = "/opt/gpushare/lib";
constexpr char kPreload[] = "libgpushare_preload.so";

bool IsLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool IsDeviceName(const std::string& name) {
  return !name.empty() && IsLetterOrDigit(name.front()) && IsLetterOrDigit(name.back()) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLetterOrDigit(c) || c == '_' || c == '-' || c == '.' || c == ':';
         });
}

// Whether this is a device node of the driver (nvidiactl, nvidia-uvm, nvidia0). Nodes of MIG instances come with their own CDI devices.
bool IsDriverNode(const std::string& name) {
  static const std::set<std::string> kCommon = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools",
                                                "nvidia-modeset"};
  if (kCommon.count(name) > 0) return true;
  const std::string rest = name.substr(0, 6) == "nvidia" ? name.substr(6) : "";
  return !rest.empty() && rest.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<CdiPath> NodesIn(const std::string& dev) {
  std::vector<CdiPath> nodes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(dev.c_str()), &closedir);
  if (folder == nullptr) return nodes;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string path = absl::StrCat(dev, "/", entry->d_name);
    struct stat status;
    if (!IsDriverNode(entry->d_name) || stat(path.c_str(), &status) != 0) continue;
    if (S_ISCHR(status.st_mode)) nodes.push_back({path, absl::StrCat("/dev/", entry->d_name)});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const CdiPath& a, const CdiPath& b) { return a.host < b.host; });
  return nodes;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whether others have files and sockets there too, docker.sock among them, which a container must not get along.
bool IsShared(const std::string& folder) {
  static const std::set<std::string> kShared = {"/",     "/dev", "/dev/shm", "/etc",
                                                "/home", "/run", "/root",    "/srv",
                                                "/tmp",  "/var", "/var/run", "/var/tmp"};
  return kShared.count(folder) > 0;
}

// The preload library and the engine behind it.
absl::StatusOr<std::vector<CdiPath>> Libraries() {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string object, FindPreloadObject(kPreload));
  const std::string folder = FolderOf(object), lib = FolderOf(FolderOf(folder));
  const std::string version = GPUSHARE_VERSION_STRING;
  const std::string engine = absl::StrCat("libgpushare.so.", version.substr(0, version.rfind('.')));
  const std::string path = absl::StrCat(lib, "/", engine);
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return absl::UnavailableError(
        absl::StrCat("the library was not found: ", path, "; is gpushare installed as a whole?"));
  }
  return std::vector<CdiPath>{{folder, absl::StrCat(kInContainer, "/gpushare/preload")},
                              {path, absl::StrCat(kInContainer, "/", engine)}};
}

void Environment(const std::vector<std::pair<std::string, std::string>>& environment,
                 base::JsonWriter* out) {
  out->Key("env").BeginArray();
  for (const auto& [name, value] : environment) out->String(absl::StrCat(name, "=", value));
  out->EndArray();
}

absl::StatusOr<CdiSpec> Made(const CdiOptions& options) {
  std::vector<std::string> tenants = options.tenants;
  std::string socket = options.socket;
  if (!options.config.empty()) {
    GPUSHARE_ASSIGN_OR_RETURN(const Configured listed, ReadConfigured(options.config));
    tenants.insert(tenants.begin(), listed.tenants.begin(), listed.tenants.end());
    if (socket.empty()) socket = listed.socket;
  }
  if (socket.empty()) socket = SocketOfEnvironment();
  CdiSpec spec;
  GPUSHARE_ASSIGN_OR_RETURN(spec.devices, CdiDevices(tenants, options.fractions));
  if (socket[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("the broker's socket: ", Quoted(socket),
                     " given; an absolute path is needed, for containers (--socket)"));
  }
  // JSON needs UTF-8, and a broker's socket cannot have a longer name.
  constexpr size_t kMostName = 80;
  const size_t name = socket.size() - socket.rfind('/') - 1;
  if (!IsUtf8(socket) || name == 0 || name > kMostName) {
    return absl::InvalidArgumentError(
        absl::StrCat("the broker's socket: ", Quoted(socket),
                     " given; allowed: a path in UTF-8 whose last name has up to ", kMostName,
                     " bytes (--socket)"));
  }
  const std::filesystem::path path = std::filesystem::path(socket).lexically_normal();
  const std::string folder = path.parent_path().string();
  if (IsShared(folder)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the broker's socket: ", Quoted(socket),
                     " given; containers get its folder as a whole, and ", Quoted(folder),
                     " is not the broker's alone; give it a folder of its own, as in ",
                     kDefaultSocket, " (--socket)"));
  }
  GPUSHARE_ASSIGN_OR_RETURN(spec.mounts, Libraries());
  // Mounts the folder, since a restarted broker creates a new socket in it.
  spec.mounts.push_back({folder, folder});
  spec.nodes = NodesIn(options.dev);
  spec.environment = {{"GPUSHARE_BROKER", path.string()},
                      {"LD_PRELOAD", absl::StrCat(kInContainer, "/gpushare/preload/", kPreload)}};
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<CdiDevice>> CdiDevices(const std::vector<std::string>& tenants,
                                                  int fractions) {
  std::vector<CdiDevice> devices;
  std::set<std::string> names;
  for (const std::string& tenant : tenants) {
    if (!IsDeviceName(tenant)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tenant ", Quoted(tenant),
          " cannot be a device: CDI allows letters, digits and, between them, '_', '-', '.', ':'"));
    }
    if (names.insert(tenant).second) devices.push_back({tenant, {{"GPUSHARE_TENANT", tenant}}});
  }
  for (int i = 1; i <= fractions; ++i) {
    const std::string name = absl::StrCat(i, "-of-", fractions);
    char share[32];
    // Rounded down to 0.01 %, a spec's resolution, so that all fractions fit.
    std::snprintf(share, sizeof(share), "%d.%02d%%", 10000 / fractions / 100,
                  10000 / fractions % 100);
    if (!names.insert(name).second) continue;
    devices.push_back({name,
                       {{"GPUSHARE_TENANT", name},
                        {"GPUSHARE_SPEC", absl::StrCat("memory=", share, ",compute=", share)}}});
  }
  if (!devices.empty()) return devices;
  return absl::InvalidArgumentError(
      "there is no device: name tenants by --config or --tenant, or ask for --fractions");
}

std::string CdiJson(const CdiSpec& spec) {
  base::JsonWriter out;
  out.BeginObject().Key("cdiVersion").String(kCdiVersion).Key("kind").String(kKind);
  out.Key("containerEdits").BeginObject();
  Environment(spec.environment, &out);
  if (!spec.nodes.empty()) {
    out.Key("deviceNodes").BeginArray();
    for (const CdiPath& node : spec.nodes) {
      out.BeginObject().Key("path").String(node.container);
      if (node.host != node.container) out.Key("hostPath").String(node.host);
      out.EndObject();
    }
    out.EndArray();
  }
  out.Key("mounts").BeginArray();
  for (const CdiPath& mount : spec.mounts) {
    out.BeginObject().Key("hostPath").String(mount.host);
    out.Key("containerPath").String(mount.container).Key("options").BeginArray();
    for (const char* option : {"ro", "nosuid", "nodev", "bind"}) out.String(option);
    out.EndArray().EndObject();
  }
  out.EndArray().EndObject().Key("devices").BeginArray();
  for (const CdiDevice& device : spec.devices) {
    out.BeginObject().Key("name").String(device.name).Key("containerEdits").BeginObject();
    Environment(device.environment, &out);
    out.EndObject().EndObject();
  }
  return out.EndArray().EndObject().text() + "\n";
}

ExitCode RunCdiGenerate(const CdiOptions& options) {
  const absl::StatusOr<CdiSpec> spec = Made(options);
  if (!spec.ok()) {
    const bool wrong = absl::IsInvalidArgument(spec.status()) || absl::IsNotFound(spec.status());
    return Fail("cdi generate", wrong ? kExitUsage : kExitFailed, spec.status());
  }
  const std::string text = CdiJson(*spec);
  if (!options.output.empty()) {
    const ExitCode written = WriteFile("cdi generate", options.output, text);
    if (written != kExitOk || !options.json) return written;
    base::JsonWriter out;
    out.BeginObject().Key("file").String(options.output).Key("devices").BeginArray();
    for (const CdiDevice& device : spec->devices) {
      out.String(absl::StrCat(kKind, "=", device.name));
    }
    std::puts(out.EndArray().EndObject().text().c_str());
    return FinishStdout("cdi generate");
  }
  std::fputs(text.c_str(), stdout);
  return FinishStdout("cdi generate");
}

}  // namespace gpushare::cli
