// SPDX-License-Identifier: Apache-2.0
// A hash table from handles to objects whose addresses are stable. Unlike std::unordered_map, a look-up needs no division, and
// erased nodes are reused without the host's allocator.
//
//   NodeTable<Object> table;
//   Object& object = table.Put(handle, Object{...});   // replaces an existing value
//   Object& other = table.Insert(handle2);             // for a new key; may hold an erased object's value
//   if (Object* found = table.Find(handle)) ...
//   table.Erase(handle);
//
// Threading: not thread-safe.
#ifndef GPUSHARE_BOOKS_NODE_TABLE_H_
#define GPUSHARE_BOOKS_NODE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gpushare::books {

template <typename Value>
class NodeTable {
 public:
  NodeTable() = default;
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;
  ~NodeTable() {
    EraseIf([](Value&) { return true; });
    while (spares_ != nullptr) delete std::exchange(spares_, spares_->next);
  }

  bool empty() const { return size_ == 0; }

  Value* Find(uint64_t key) const {
    for (Node* node = *Bucket(key); node != nullptr; node = node->next) {
      if (node->key == key) return &node->value;
    }
    return nullptr;
  }

  Value& Put(uint64_t key, Value&& value) {
    if (Value* const found = Find(key)) return *found = std::move(value);
    return Insert(key) = std::move(value);
  }

  // The key must not be in the table. The returned value is an erased one or new.
  Value& Insert(uint64_t key) {
    if (size_ == buckets_.size()) Grow();
    Node* node = spares_;
    if (node != nullptr) {
      spares_ = node->next;
      --spare_;
    } else {
      node = new Node;
    }
    node->key = key;
    Node** const bucket = Bucket(key);
    node->next = std::exchange(*bucket, node);
    ++size_;
    return node->value;
  }

  void Erase(uint64_t key) {
    for (Node** at = Bucket(key); *at != nullptr; at = &(*at)->next) {
      if ((*at)->key == key) return Unlink(at);
    }
  }

  // Erases every value for which `which` returns true. `which` may move the value out.
  template <typename F>
  void EraseIf(const F& which) {
    for (Node*& bucket : buckets_) {
      for (Node** at = &bucket; *at != nullptr;) {
        if (which((*at)->value)) {
          Unlink(at);
        } else {
          at = &(*at)->next;
        }
      }
    }
  }

  template <typename F>
  void ForEach(const F& visit) const {
    for (const Node* bucket : buckets_) {
      for (; bucket != nullptr; bucket = bucket->next) visit(bucket->value);
    }
  }

 private:
  struct Node {
    uint64_t key = 0;
    Node* next = nullptr;
    Value value{};
  };
  static constexpr size_t kFirst = 16, kMostSpares = 64;

  Node** Bucket(uint64_t key) const {
    return const_cast<Node**>(&buckets_[(key * 0x9e3779b97f4a7c15) >> shift_]);
  }
  void Unlink(Node** at) {
    Node* const node = *at;
    *at = node->next;
    --size_;
    if (spare_ == kMostSpares) {
      delete node;
      return;
    }
    node->next = std::exchange(spares_, node);  // keeps its value, to be reused
    ++spare_;
  }
  void Grow() {
    std::vector<Node*> old(buckets_.size() * 2);
    old.swap(buckets_);
    --shift_;
    for (Node* node : old) {
      while (node != nullptr) {
        Node* const next = node->next;
        Node** const bucket = Bucket(node->key);
        node->next = std::exchange(*bucket, node);
        node = next;
      }
    }
  }

  std::vector<Node*> buckets_ = std::vector<Node*>(kFirst);  // a power of two
  int shift_ = 60;                                           // 64 - log2 of the number of buckets
  size_t size_ = 0, spare_ = 0;
  Node* spares_ = nullptr;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_NODE_TABLE_H_
