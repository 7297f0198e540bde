// SPDX-License-Identifier: Apache-2.0
// Which tenant work belongs to: tenants, scopes, bindings.
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class IdentityTest : public DeviceTest {
 protected:
  std::string Whose(CUstream_st* stream = nullptr) {
    const auto device = VirtualDevice::Resolve(*gpu_, stream);
    if (!device.ok()) return std::string(device.status().message());
    return Must(device->stats()).tenant;
  }
};

TEST_F(IdentityTest, NamesLabelsAndTheirRules) {
  const Tenant tenant =
      Must(Tenant::Create(*runtime_, {.name = "team-a", .labels = {{"cost", "42"}}}));
  EXPECT_EQ(Must(tenant.name()), "team-a");
  EXPECT_EQ(Must(tenant.label("cost")), "42");
  EXPECT_EQ(tenant.label("none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Tenant::Create(*runtime_, {.name = "team-a"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Tenant::Create(*runtime_, {.name = "default"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  for (const std::string& name :
       {std::string(), std::string(64, 'x'), std::string("\xff"), std::string("a\nb")}) {
    EXPECT_EQ(Tenant::Create(*runtime_, {.name = name}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const Tenant child = Must(Tenant::Create(*runtime_, {.name = "child", .parent = &tenant}));
  EXPECT_EQ(Tenant::Create(*runtime_, {.name = "grandchild", .parent = &child}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(IdentityTest, ANameIsFreeAgainWhenItsTenantIsGone) {
  { const Tenant tenant = MakeTenant("a"); }
  { const Tenant tenant = MakeTenant("a"); }
}

TEST_F(IdentityTest, InOrder) {
  EXPECT_EQ(Whose(), "default");
  const Tenant a = MakeTenant("a"), b = MakeTenant("b"), c = MakeTenant("c");
  const VirtualDevice on_a = Must(VirtualDevice::Create(*gpu_, a, ""));
  const VirtualDevice on_b = Must(VirtualDevice::Create(*gpu_, b, ""));
  const VirtualDevice on_c = Must(VirtualDevice::Create(*gpu_, c, ""));

  // The identity of the current context.
  CUctx_st* context = nullptr;
  auto* current = runtime_->Symbol<int(CUctx_st**)>("cuCtxGetCurrent");
  ASSERT_NE(current, nullptr);
  ASSERT_EQ(current(&context), 0);
  ASSERT_NE(context, nullptr);
  ASSERT_OK(on_c.BindContext(*gpu_, context));
  EXPECT_EQ(Whose(), "c");
  {
    // The thread's scope takes precedence over it, the innermost scope first.
    TenantScope outer(a);
    EXPECT_EQ(Whose(), "a");
    {
      TenantScope inner(b);
      EXPECT_EQ(Whose(), "b");
      // A stream's binding takes precedence over both.
      const Stream stream = Must(Stream::Create(on_a));
      EXPECT_EQ(Whose(Must(stream.native())), "a");
    }
    EXPECT_EQ(Whose(), "a");
  }
  EXPECT_EQ(Whose(), "c");
  // The call's own argument takes precedence over everything.
  gpushare_vdev device = nullptr;
  ASSERT_EQ(gpushare_gpu_resolve(gpu_->handle(), on_b.handle(), nullptr, &device), GPUSHARE_OK);
  gpushare_vdev_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(gpushare_vdev_get_stats(device, &stats), GPUSHARE_OK);
  EXPECT_STREQ(stats.tenant, "b");
  EXPECT_EQ(gpushare_vdev_destroy(device), GPUSHARE_OK);
  ASSERT_EQ(gpushare_gpu_bind_context(gpu_->handle(), context, nullptr), GPUSHARE_OK);
  EXPECT_EQ(Whose(), "default");
}

TEST_F(IdentityTest, ATokenCarriesTheScopeToAWorker) {
  const Tenant a = MakeTenant("a");
  const VirtualDevice device = Must(VirtualDevice::Create(*gpu_, a, "memory=1GiB"));
  EXPECT_FALSE(static_cast<bool>(TenantScope::Current()));
  std::string without, with;
  {
    TenantScope scope(a);
    const TenantToken token = TenantScope::Current();
    Thread thread = Must(runtime_->StartThread("worker", [&, token] {
      without = Whose();
      TenantScope inherited(token);
      with = Whose();
      Must(gpu_->Allocate(MiB(1)));
    }));
  }
  EXPECT_EQ(without, "default");
  EXPECT_EQ(with, "a");
  EXPECT_EQ(Must(device.stats()).memory.used, MiB(1));
}

TEST_F(IdentityTest, ATenantWithoutADeviceHereIsToldSo) {
  const Tenant a = MakeTenant("a");
  TenantScope scope(a);
  EXPECT_THAT(Whose(), HasSubstr("tenant 'a', which has no virtual device on GPU 0"));
}

TEST_F(IdentityTest, AScopeOfAGoneTenantIsAnError) {
  TenantToken token;
  {
    const Tenant a = MakeTenant("a");
    token = TenantToken(a);
  }
  TenantScope scope(token);
  EXPECT_EQ(scope.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Whose(), "default");
}

TEST_F(IdentityTest, ScopesAreLeftInReverseOrder) {
  const Tenant a = MakeTenant("a");
  uint64_t outer = 0, inner = 0;
  ASSERT_EQ(gpushare_scope_enter(a.handle(), &outer), GPUSHARE_OK);
  ASSERT_EQ(gpushare_scope_enter(a.handle(), &inner), GPUSHARE_OK);
  EXPECT_EQ(gpushare_scope_leave(outer), GPUSHARE_FAILED_PRECONDITION);
  EXPECT_EQ(gpushare_scope_leave(inner), GPUSHARE_OK);
  EXPECT_EQ(gpushare_scope_leave(outer), GPUSHARE_OK);
  EXPECT_EQ(gpushare_scope_leave(outer), GPUSHARE_FAILED_PRECONDITION);
}

TEST_F(IdentityTest, UnattributedWorkIsVisible) {
  const DevicePtr pointer = Must(gpu_->Allocate(MiB(3)));
  const Snapshot snapshot = Must(Snapshot::Take(*runtime_));
  ASSERT_NE(snapshot.Find("default"), nullptr);
  EXPECT_EQ(snapshot.Find("default")->memory.used, MiB(3));
  EXPECT_OK(gpu_->Free(pointer));
}

TEST_F(IdentityTest, TheDefaultTenantCanBeLimited) {
  const Tenant nobody = Must(Tenant::Default(*runtime_));
  const VirtualDevice device = Must(VirtualDevice::Create(*gpu_, nobody, "memory=1MiB"));
  EXPECT_EQ(gpu_->Allocate(MiB(2)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(IdentityTest, AFreeCreditsWhoeverAllocated) {
  const Tenant a = MakeTenant("a"), b = MakeTenant("b");
  const VirtualDevice on_a = Must(VirtualDevice::Create(*gpu_, a, "memory=1GiB"));
  const VirtualDevice on_b = Must(VirtualDevice::Create(*gpu_, b, "memory=1GiB"));
  const Allocator of_a = Must(Allocator::Create(on_a)), of_b = Must(Allocator::Create(on_b));
  const DevicePtr pointer = Must(of_a.AllocateRaw(MiB(8)));
  uint64_t bytes = 0;
  gpushare_vdev owner = nullptr;
  ASSERT_EQ(gpushare_gpu_pointer(gpu_->handle(), pointer.value(), &bytes, &owner), GPUSHARE_OK);
  EXPECT_EQ(bytes, MiB(8).count());
  EXPECT_EQ(gpushare_vdev_destroy(owner), GPUSHARE_OK);
  EXPECT_OK(of_b.Free(pointer));
  EXPECT_EQ(Must(on_a.stats()).memory.used, Bytes(0));
  EXPECT_EQ(Must(on_b.stats()).memory.used, Bytes(0));
  EXPECT_EQ(gpushare_gpu_pointer(gpu_->handle(), pointer.value(), &bytes, &owner),
            GPUSHARE_NOT_FOUND);
}

}  // namespace
}  // namespace gpushare
