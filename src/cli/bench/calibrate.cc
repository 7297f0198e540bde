// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/calibrate.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "cli/bench/bed.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/run/preload_object.h"
#include "cli/text_table.h"
#include "harness/calibrate/calibrate.h"
#include "harness/folder.h"
#include "harness/orphans.h"

namespace gpushare::cli {
namespace {

constexpr char kCalibrate[] = "bench calibrate";

// Variables that are passed on in addition to those of a run: which GPUs are visible, and where the driver is. Variables that share or
// slow a GPU are not passed on.
constexpr const char* kKeptVariables[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                          "CUDA_MPS_PIPE_DIRECTORY", "LD_LIBRARY_PATH"};

// The kernel driver's release, such as "580.159.04"; empty without one.
std::string DriverRelease() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string release;
  std::getline(file, release);
  return release;
}

std::string CudaVersion(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

struct CalibrateSubject {
  harness::CalibrateOptions options;
  std::vector<std::pair<std::string, std::string>> from;
  std::string note;
};

// Describes the GPU for the measuring programs. It is closed again, so that they have it to themselves.
absl::StatusOr<CalibrateSubject> OpenSubject(const CalibrateCommand& command) {
  GPUSHARE_ASSIGN_OR_RETURN(const OpenedGpu opened, OpenGpu(command.kind, command.device));
  GPUSHARE_ASSIGN_OR_RETURN(const RuntimeInfo info, opened.runtime.info());
  CalibrateSubject subject;
  subject.note = opened.note;
  harness::CalibrateOptions& options = subject.options;
  options.uuid = opened.probe.uuid;
  options.simulated = opened.simulated;
  options.environment = harness::WithoutThoseOfSharing(environ);
  for (const char* const name : kKeptVariables) {
    if (const auto value = base::GetEnv(name)) options.environment[name] = *value;
  }
  options.environment["GPUSHARE_DRIVER"] = info.driver_path;
  if (opened.simulated) {
    options.environment["GPUSHARE_SIM"] = base::GetEnv("GPUSHARE_SIM").value_or("");
    GPUSHARE_ASSIGN_OR_RETURN(options.gpu, harness::Simulated::Load(info.driver_path));
  }
  const harness::Circumstances here = DescribeCircumstances();
  const std::string release = opened.simulated ? "simulated" : DriverRelease();
  subject.from = {{"gpu", opened.probe.name}, {"simulated", opened.simulated ? "yes" : "no"},
                  {"driver", release},        {"cuda", CudaVersion(info.driver_version)},
                  {"machine", here.machine},  {"gpushare", here.version},
                  {"commit", here.commit},    {"date", here.begun}};
  std::erase_if(subject.from, [](const auto& pair) { return pair.second.empty(); });
  return subject;
}

std::string ProfileTableOf(const std::vector<harness::ProfileFigure>& figures) {
  TextTable table(
      {{"figure"}, {"median", Align::kRight}, {"between", Align::kRight}, {"what it is"}});
  for (const harness::ProfileFigure& figure : figures) {
    const harness::Median& median = figure.median;
    std::string value = "-", between, words = figure.info->words;
    if (!figure.why_not.empty()) {
      words = absl::StrCat("not measured: ", Printable(figure.why_not, 100));
    } else if (!figure.words.empty()) {
      value = Printable(figure.words, 60);
    } else {
      value = ShownValue(figure, median.value);
      if (median.n > 1) {
        between =
            absl::StrCat(ShownValue(figure, median.low), " .. ", ShownValue(figure, median.high));
      }
    }
    table.AddRow({figure.info->name, value, between, words});
  }
  return table.ToString();
}

std::string ProfileJsonOf(const harness::Profile& profile, const std::vector<std::string>& failed) {
  base::JsonWriter json;
  json.BeginObject().Key("from").BeginObject();
  for (const auto& [key, value] : profile.from) json.Key(key).String(value);
  json.EndObject().Key("figures").BeginArray();
  for (const harness::ProfileFigure& figure : profile.figures) {
    json.BeginObject().Key("figure").String(figure.info->name);
    json.Key("part").String(figure.info->part);
    if (!figure.why_not.empty()) {
      json.Key("not_measured").String(figure.why_not);
    } else if (!figure.words.empty()) {
      json.Key("value").String(figure.words);
    } else {
      json.Key("unit").String(figure.info->unit);
      json.Key("median").Number(figure.median.value);
      json.Key("low").Number(figure.median.low);
      json.Key("high").Number(figure.median.high);
      json.Key("samples").Integer(static_cast<int64_t>(figure.median.n));
    }
    if (const std::string setting = harness::SettingOf(figure); !setting.empty()) {
      json.Key("setting").String(setting);
    }
    json.EndObject();
  }
  json.EndArray().Key("failed").BeginArray();
  for (const std::string& why : failed) json.String(why);
  return json.EndArray().EndObject().text() + "\n";
}

}  // namespace

ExitCode CalibrateGpu(const CalibrateCommand& command) {
  absl::StatusOr<std::string> program = FindInstalled("bench", "calibrate");
  if (!program.ok()) return Fail(kCalibrate, ExitCodeOf(program.status()), program.status());
  absl::StatusOr<std::string> temporary = harness::TemporaryFolder();
  if (!temporary.ok()) return Fail(kCalibrate, kExitUsage, temporary.status());
  if (const ExitCode code = CheckWritable(kCalibrate, command.out); code != kExitOk) return code;
  struct stat there;
  if (!command.force && command.out != kStdout && stat(command.out.c_str(), &there) == 0 &&
      S_ISREG(there.st_mode) && there.st_size > 0) {
    return Fail(kCalibrate, kExitOutput,
                absl::AlreadyExistsError(absl::StrCat(
                    Quoted(command.out), " is there already; --force writes it anew")));
  }
  absl::StatusOr<CalibrateSubject> subject = OpenSubject(command);
  if (!subject.ok()) return Fail(kCalibrate, ExitCodeOf(subject.status()), subject.status());
  if (!subject->note.empty()) {
    std::fprintf(stderr, "gpushare %s: of the simulated GPU, because %s\n", kCalibrate,
                 subject->note.c_str());
  }
  harness::CalibrateOptions& options = subject->options;
  options.program = *std::move(program);
  options.temporary = *std::move(temporary);
  options.limit = Seconds(command.limit_s);
  options.in_all = Seconds(command.in_all_s);
  const std::atomic<int>& interrupted = TellInterrupts();
  options.interrupted = &interrupted;
  harness::AdoptOrphans();
  ProgressBar bar(stderr,
                  command.quiet ? ProgressBar::Shown::kNever : ProgressBar::Shown::kOnTerminal);
  harness::Calibration done = harness::Calibrate(
      options, [&](double part, const std::string& name) { bar.Update(part, name); });
  bar.Clear();
  if (interrupted != 0) EndBySignal(kCalibrate, interrupted);

  const harness::Profile profile = {subject->from, std::move(done.figures)};
  if (command.json) {
    std::fputs(ProfileJsonOf(profile, done.failed).c_str(), stdout);
  } else if (command.out != kStdout) {
    std::fputs(ProfileTableOf(profile.figures).c_str(), stdout);
  }
  ExitCode code = FinishStdout(kCalibrate);
  if (const ExitCode written = WriteFile(kCalibrate, command.out, FormatProfile(profile));
      written != kExitOk) {
    code = written;
  }
  for (const std::string& why : done.failed) {
    std::fprintf(stderr, "gpushare %s: %s\n", kCalibrate, why.c_str());
  }
  if (code != kExitOk) return code;
  return done.failed.empty() ? kExitOk : kExitFailed;
}

}  // namespace gpushare::cli
