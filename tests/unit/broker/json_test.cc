// SPDX-License-Identifier: Apache-2.0
#include "broker/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/remains.h"
#include "tests/unit/broker/snapshots.h"

namespace gpushare::broker {
namespace {

using ::testing::HasSubstr;

TEST(BrokerJson, GivesTheSameSnapshotBack) {
  const Snapshot snapshot = TwoTenants();
  const auto again = SnapshotFromJson(ToJson(snapshot));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJson(*again), ToJson(snapshot));
  // One member of each kind.
  ASSERT_EQ(again->shares.size(), 2u);
  const Share& share = again->shares[0];
  EXPECT_EQ(share.tenant, "online");
  EXPECT_EQ(share.labels.at("team"), "search \"engine\"\\\n");
  EXPECT_EQ(share.time_used, Seconds(90));
  EXPECT_EQ(share.memory_limit, uint64_t{8} << 30);
  EXPECT_EQ(share.priority, "high");
  EXPECT_EQ(share.guarantee, 0.5);
  EXPECT_EQ(share.waits, 17u);
  ASSERT_EQ(share.processes.size(), 2u);
  EXPECT_EQ(share.processes[1].pid, 4243);
  EXPECT_TRUE(share.processes[1].gone);
  EXPECT_EQ(again->shares[1].memory_limit, UINT64_MAX);
  EXPECT_TRUE(again->shares[1].suspended);
  EXPECT_EQ(again->at, Time(Seconds(100)));
  EXPECT_EQ(again->gpus[0].memory, uint64_t{140} << 30);
}

TEST(BrokerJson, GivesWhatAnAuditFoundBack) {
  Snapshot snapshot = TwoTenants();
  snapshot.audits = 9;
  snapshot.audited = true;
  snapshot.shares[0].processes[0].audit = AuditResult::kOverGrant;
  snapshot.shares[0].processes[0].memory_by_driver = 5000;
  snapshot.shares[0].processes[0].memory_overhead = 300;
  snapshot.gpus[0].strangers = {{.pid = 77, .program = "game", .memory_by_driver = 600}};
  const std::string text = ToJson(snapshot);
  const auto again = SnapshotFromJson(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJson(*again), text);
  EXPECT_EQ(again->shares[0].processes[0].audit, AuditResult::kOverGrant);
  EXPECT_EQ(again->gpus[0].strangers.at(0).memory_by_driver, 600u);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["shares"][0]["processes"][0]["audit"], "over_grant");
  EXPECT_TRUE(json["shares"][0]["processes"][1]["memory_by_driver"].is_null());
  EXPECT_EQ(json["shares"][0]["processes"][0]["memory_overhead"], 300);
  EXPECT_TRUE(json["shares"][0]["processes"][1]["memory_overhead"].is_null());
}

TEST(BrokerJson, GivesBackWhatAnAuditFoundOfTime) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].processes[0].audit = AuditResult::kUnderstatesTime;
  snapshot.shares[0].processes[1].audit = AuditResult::kRunsPastGpushare;
  const std::string text = ToJson(snapshot);
  const auto again = SnapshotFromJson(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ToJson(*again), text);
  const nlohmann::json processes = nlohmann::json::parse(text)["shares"][0]["processes"];
  EXPECT_EQ(processes[0]["audit"], "understates_time");
  EXPECT_EQ(processes[1]["audit"], "runs_past_gpushare");
}

TEST(BrokerJson, IsJsonWithUnitsInItsKeys) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].processes[0].program = "serve\xff";
  const nlohmann::json json = nlohmann::json::parse(ToJson(snapshot));
  EXPECT_EQ(json["shares"][0]["time_used_ns"], 90'000'000'000);
  EXPECT_TRUE(json["shares"][1]["memory_limit"].is_null());
  // Text that is not UTF-8 would not be valid JSON.
  EXPECT_EQ(json["shares"][0]["processes"][0]["program"], "serve\xef\xbf\xbd");
}

TEST(BrokerJson, PassesOverWhatItDoesNotKnow) {
  const auto snapshot = SnapshotFromJson(R"({"sessions": 3, "news": [1, {"a": 2}]})");
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->sessions, 3u);
}

TEST(BrokerJson, RefusesWhatIsNone) {
  for (const char* text :
       {"", "{", "[]", "7", R"({"sessions": -1})", R"({"sessions": "3"})", R"({"shares": {}})",
        R"({"shares": [7]})", R"({"shares": [{"tenant": null}]})",
        R"({"shares": [{"labels": {"a": 1}}]})",
        R"({"shares": [{"processes": [{"pid": 2147483648}]}]})",
        R"({"shares": [{"processes": [{"audit": "perhaps"}]}]})",
        R"({"gpus": [{"strangers": [1]}]})", R"({"at_ns": 1e300})"}) {
    EXPECT_EQ(SnapshotFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(SnapshotFromJson(R"({"gpus": [{"uuid": 1}]})").status().message()),
              HasSubstr("another form: uuid"));
}

// The file that a broker leaves for its successor, and what happens if it was damaged or forged.
TEST(Remains, ComesBackAsItWentOrNotAtAll) {
  Remains remains;
  remains.draining = true;
  remains.gpus = {{.uuid = "GPU-1", .memory = 16ull << 30, .sm_count = 132, .draining = true}};
  remains.tenants = {{.name = "a",
                      .listed = true,
                      .owner = 7,
                      .spec = "memory=1GiB",
                      .on = {{"GPU-1", "memory=2GiB"}},
                      .parent = "team"}};
  remains.changes = {{.gpu = "GPU-1", .tenant = "a", .configured = "", .spec = "cap=50%"}};
  remains.processes = {{.session = 3,
                        .pid = 42,
                        .began = 1234,
                        .uid = 1000,
                        .gid = 1001,
                        .asked = "a",
                        .tenant = "a",
                        .program = "\"train\" \xc3\xa4\n",
                        .image = 5678,
                        .returns = true,
                        .evicted = false,
                        .holds = {{.gpu = "GPU-1", .granted = 1ull << 30}}}};
  const Where where{.boot = "of this machine", .pid_namespace = 4026531836};
  const std::string text = ToJson(remains, where);
  Where read_where;
  const absl::StatusOr<Remains> read = RemainsFromJson(text, &read_where);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == remains && read_where == where);

  const auto refused = [](const std::string& what) {
    Where none;
    return !RemainsFromJson(what, &none).ok();
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("[]"));
  EXPECT_TRUE(refused(with("\"version\": 5", "\"version\": 4")));
  EXPECT_TRUE(refused(with("\"pid\": 42", "\"pid\": -42")));
  EXPECT_TRUE(refused(with("1073741824", "18446744073709551615")));
  EXPECT_TRUE(refused(with("\"began\": 1234", "\"begun\": 1234")));
  EXPECT_TRUE(refused(with("\"holds\": [", "\"holds\": [{\"gpu\": \"GPU-1\",\"granted\": 1},")));
  // Whatever input is accepted can be written again.
  std::mt19937 random(1);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string changed = text;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    if (trial % 3 == 0) changed.resize(random() % changed.size());
    Where there;
    const absl::StatusOr<Remains> accepted = RemainsFromJson(changed, &there);
    if (!accepted.ok()) continue;
    const absl::StatusOr<Remains> again = RemainsFromJson(ToJson(*accepted, there), &there);
    ASSERT_TRUE(again.ok() && *again == *accepted) << changed;
  }
}

// Later grants are in lines after the whole document. The last line may be cut off, since nobody was told of its
// grant yet.
TEST(Remains, GrowByLines) {
  const auto process = [](uint64_t session, const std::string& tenant, uint64_t granted) {
    return Remains::Process{.session = session,
                            .pid = 42,
                            .began = 1234,
                            .uid = 1000,
                            .gid = 1001,
                            .asked = tenant,
                            .tenant = tenant,
                            .program = "train\n",
                            .image = 5678,
                            .returns = true,
                            .evicted = false,
                            .holds = {{.gpu = "GPU-1", .granted = granted}}};
  };
  const Remains::Tenant a{.name = "a", .listed = true, .owner = 0, .spec = ""},
      b{.name = "b", .listed = false, .owner = 7, .spec = ""};
  const Remains::Gpu gpu{.uuid = "GPU-1", .memory = 1 << 30, .sm_count = 1, .draining = false};
  Remains remains;
  remains.tenants = {a};
  remains.processes = {process(1, "a", 10), process(2, "a", 20)};
  const std::string whole = ToJson(remains, {.boot = "of this machine", .pid_namespace = 1});
  const std::string
      first = ToJson(Remains::Growth{
          .gpus = {gpu}, .tenants = {b}, .processes = {process(3, "b", 30)}, .gone = {1}}),
      second = ToJson(Remains::Growth{
          .gpus = {gpu}, .tenants = {a}, .processes = {process(2, "a", 25)}, .gone = {}});
  Where where;
  const auto read = [&](const std::string& text) { return RemainsFromJson(text, &where); };
  Remains grown = remains;
  grown.gpus = {gpu};
  grown.tenants = {a, b};
  grown.processes = {process(2, "a", 25), process(3, "b", 30)};
  absl::StatusOr<Remains> got = read(whole + first + second);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(*got == grown);
  grown.processes[0] = process(2, "a", 20);
  for (size_t cut = 1; cut <= second.size(); ++cut) {
    got = read(whole + first + second.substr(0, second.size() - cut));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(*got == grown) << cut;
  }
  EXPECT_FALSE(read(whole + "nonsense\n" + second).ok());
  EXPECT_FALSE(read(whole + "{}\n").ok());
  EXPECT_FALSE(read(first + whole).ok());

  // Adding a line writes nothing else. It fails if there is no document to add to.
  const std::string path = absl::StrCat(::testing::TempDir(), "/gpushare-growing-", getpid());
  RemainsFile file(path);
  const Remains::Growth more{
      .gpus = {}, .tenants = {b}, .processes = {process(3, "b", 30)}, .gone = {1, 2}};
  EXPECT_FALSE(file.Add(more));
  ASSERT_TRUE(file.Write(remains).ok());
  const auto inode = [&] {
    struct stat found;
    return stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
  };
  const ino_t before = inode();
  EXPECT_TRUE(file.Add(more));
  EXPECT_EQ(inode(), before);
  const auto kept = RemainsFile(path).Read();
  ASSERT_TRUE(kept.ok() && kept->has_value()) << kept.status();
  EXPECT_TRUE((*kept)->processes == std::vector<Remains::Process>{process(3, "b", 30)});
  // After many added lines the whole document has to be written anew, even if the lines change nothing.
  ASSERT_TRUE(file.Write(remains).ok());
  EXPECT_TRUE(RemainsFile(path).Read().value() == remains);
  size_t lines = 0;
  while (lines < 100'000 && file.Add(more)) ++lines;
  EXPECT_LT(lines, 10'000u);
  ASSERT_TRUE(file.Write(remains).ok());
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_FALSE(file.Add(more)) << "nobody would read it";
  ASSERT_TRUE(file.Write(Remains()).ok());
}

}  // namespace
}  // namespace gpushare::broker
