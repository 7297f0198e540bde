// SPDX-License-Identifier: Apache-2.0
// A tenant, behind gpushare_tenant.
#ifndef GPUSHARE_DEVICE_PROCESS_TENANT_H_
#define GPUSHARE_DEVICE_PROCESS_TENANT_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Gpu;
class VirtualDevice;

class Tenant {
 public:
  Tenant(std::string name, gpushare_priority priority, std::map<std::string, std::string> labels,
         std::shared_ptr<Tenant> parent = nullptr)
      : name_(std::move(name)),
        priority_(priority),
        labels_(std::move(labels)),
        parent_(std::move(parent)) {
    if (parent_ == nullptr) return;
    base::MutexLock lock(&parent_->mutex_);
    parent_->children_.insert(this);
  }
  ~Tenant() {
    if (parent_ == nullptr) return;
    base::MutexLock lock(&parent_->mutex_);
    parent_->children_.erase(this);
  }
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;

  const std::string& name() const { return name_; }
  gpushare_priority priority() const { return priority_; }
  const std::shared_ptr<Tenant>& parent() const { return parent_; }  // null: none
  std::vector<std::string> children() const {                        // their names, in order
    std::set<std::string> names;
    base::MutexLock lock(&mutex_);
    for (const Tenant* child : children_) names.insert(child->name_);
    return {names.begin(), names.end()};
  }
  // Null: the tenant has no such label.
  const std::string* label(const std::string& key) const {
    const auto at = labels_.find(key);
    return at == labels_.end() ? nullptr : &at->second;
  }

  // Its device on `gpu`; null: none. The key is the GPU's address, since other runtimes use the same ordinals.
  std::shared_ptr<VirtualDevice> DeviceOn(const Gpu* gpu) const {
    base::MutexLock lock(&mutex_);
    const auto at = devices_.find(gpu);
    return at == devices_.end() ? nullptr : at->second.lock();
  }
  void SetDevice(const Gpu* gpu, const std::shared_ptr<VirtualDevice>& device) {
    base::MutexLock lock(&mutex_);
    devices_[gpu] = device;
  }

 private:
  const std::string name_;
  const gpushare_priority priority_;
  const std::map<std::string, std::string> labels_;
  const std::shared_ptr<Tenant> parent_;

  mutable base::Mutex mutex_;
  std::map<const Gpu*, std::weak_ptr<VirtualDevice>> devices_ ABSL_GUARDED_BY(mutex_);
  std::set<const Tenant*> children_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_TENANT_H_
