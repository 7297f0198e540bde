// SPDX-License-Identifier: Apache-2.0
#include "harness/calibrate/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "harness/children.h"
#include "harness/folder.h"

namespace gpushare::harness {
namespace {

// A part, the number of its processes, and how often it is repeated.
struct CalibratePart {
  const char* name;
  int processes, times;
};
constexpr CalibratePart kCalibrateParts[] = {
    {"device", 1, 1},         {"calls", 1, 1},  {"markers", 1, 1},
    {"latency", 1, 1},        {"copies", 1, 1}, {"concurrency", 1, 1},
    {"first_launches", 1, 1}, {"slices", 2, 1}, {"teardown", 2, 3}};

class OneCalibration {
 public:
  OneCalibration(const CalibrateOptions& options, const Folder& folder)
      : options_(options), folder_(folder) {}

  absl::Status Do(const CalibratePart& part, int time) {
    const std::string run = absl::StrCat(part.name, "-", time);
    // The name under which the part's processes share a simulated GPU, unique for this run.
    const std::string shared = absl::StrCat(folder_.name(), "-", run);
    Children children(options_.interrupted);
    absl::Status status;
    for (int seat = 0; seat < part.processes && status.ok(); ++seat) {
      Program program;
      program.name = part.processes == 1 ? absl::StrCat("part ", part.name)
                                         : absl::StrCat("part ", part.name, ", process ", seat);
      program.command = {options_.program,
                         absl::StrCat(getpid()),
                         part.name,
                         absl::StrCat(seat),
                         options_.uuid,
                         folder_ / absl::StrCat(run, ".findings-", seat),
                         folder_ / absl::StrCat(run, ".meeting")};
      program.environment = options_.environment;
      if (options_.simulated) {
        absl::StrAppend(&program.environment["GPUSHARE_SIM"],
                        ",shared=", part.processes == 1 ? "" : shared,
                        ",processes=", part.processes, ",place=", seat);
      }
      program.log = folder_ / absl::StrCat(run, ".log-", seat);
      program.may_be_killed = std::string_view(part.name) == "teardown" && seat == 1;
      status = children.Start(program);
    }
    if (status.ok()) status = children.Wait(options_.limit);
    if (options_.simulated && part.processes > 1) options_.gpu.Forget(shared);
    for (int seat = 0; seat < part.processes; ++seat) {
      std::ifstream file(folder_ / absl::StrCat(run, ".findings-", seat), std::ios::binary);
      for (std::string line; std::getline(file, line);) {
        absl::StatusOr<Finding> finding = ParseFinding(line);
        // The last line of a program that was killed may be incomplete.
        if (!finding.ok()) {
          if (status.ok()) status = finding.status();
          continue;
        }
        findings_.push_back(*std::move(finding));
      }
    }
    return status;
  }

  const std::vector<Finding>& findings() const { return findings_; }

 private:
  const CalibrateOptions& options_;
  const Folder& folder_;
  std::vector<Finding> findings_;
};

// Sets the reason for the figures of a part that have no findings.
void GiveReason(const char* part, const std::string& why, std::vector<ProfileFigure>* figures) {
  for (ProfileFigure& figure : *figures) {
    if (std::string_view(figure.info->part) != part || figure.median.n > 0) continue;
    if (figure.words.empty()) figure.why_not = why;
  }
}

}  // namespace

Calibration Calibrate(const CalibrateOptions& options,
                      const std::function<void(double, const std::string&)>& progress) {
  Calibration done;
  const absl::StatusOr<std::unique_ptr<Folder>> folder = Folder::Make(options.temporary);
  if (!folder.ok()) {
    done.failed.push_back(std::string(folder.status().message()));
    done.figures = FiguresOfFindings({});
    return done;
  }
  OneCalibration calibration(options, **folder);
  int all = 0, begun = 0;
  for (const CalibratePart& part : kCalibrateParts) all += part.times;
  std::vector<std::pair<const char*, std::string>> reasons;
  const Time start = base::RealClock().Now();
  for (const CalibratePart& part : kCalibrateParts) {
    for (int time = 0; time < part.times && !done.interrupted; ++time) {
      progress(static_cast<double>(begun++) / all, part.name);
      if (base::RealClock().Now() - start > options.in_all) {
        reasons.emplace_back(part.name, "there was no time left for it");
        done.failed.push_back(absl::StrCat("part ", part.name, ": there was no time left for it"));
        break;
      }
      const absl::Status status = calibration.Do(part, time);
      if (status.ok()) continue;
      done.interrupted = absl::IsCancelled(status);
      const bool names_itself =
          absl::IsInternal(status);  // the message of a failed program names it
      reasons.emplace_back(part.name, std::string(status.message()));
      done.failed.push_back(absl::StrCat(names_itself ? "" : absl::StrCat("part ", part.name, ": "),
                                         status.message()));
      break;
    }
  }
  done.figures = FiguresOfFindings(calibration.findings());
  for (const auto& [part, why] : reasons) GiveReason(part, why, &done.figures);
  return done;
}

}  // namespace gpushare::harness
