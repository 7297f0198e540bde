// SPDX-License-Identifier: Apache-2.0
#include "yaml/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::yaml {
namespace {

// Thrown from the parser's event handler: the parser cannot be stopped in another way.
struct Refused {
  int line;
  std::string why;
};

int LineOf(const YAML::Mark& mark) { return mark.is_null() ? 1 : mark.line + 1; }

class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Made(Node::Kind::kNothing, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refused{LineOf(mark), "aliases (*name) are not allowed; write the value again"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = Made(Node::Kind::kText, mark, tag, anchor);
    node.text = value;
    node.quoted = tag == "!";
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(Made(Node::Kind::kList, mark, tag, anchor));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(Made(Node::Kind::kMap, mark, tag, anchor));
  }
  void OnMapEnd() override { Close(); }

  Node Take() { return std::move(root_); }

 private:
  Node Made(Node::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    const int line = LineOf(mark);
    if (anchor != 0) throw Refused{line, "anchors (&name) are not allowed"};
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{line, absl::StrCat("tags are not allowed: ", Quoted(tag), " given")};
    }
    if (++nodes_ > kMostNodes) {
      throw Refused{line, absl::StrCat("more than ", kMostNodes, " values")};
    }
    Node node;
    node.kind = kind;
    node.line = line;
    return node;
  }
  void Open(Node node) {
    if (open_.size() >= kMostDepth) {
      throw Refused{node.line, absl::StrCat("nested more than ", kMostDepth, " deep")};
    }
    open_.push_back(std::move(node));
  }
  void Close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    Add(std::move(node));
  }
  void Add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Node& parent = open_.back();
    const bool is_key =
        parent.kind == Node::Kind::kMap && parent.keys.size() == parent.values.size();
    (is_key ? parent.keys : parent.values).push_back(std::move(node));
  }

  Node root_;
  std::vector<Node> open_;
  size_t nodes_ = 0;
};

}  // namespace

absl::StatusOr<Node> Parse(std::string_view text, std::string_view file) {
  const auto wrong = [file](int line, std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(file, 256), ":", line, ": ", Printable(why, 512)));
  };
  if (text.size() > kMostBytes) {
    return wrong(1, absl::StrCat(text.size(), " bytes given, at most ", kMostBytes, " allowed"));
  }
  if (!IsUtf8(text)) return wrong(1, "the text is not valid UTF-8");
  // The parser would take zero bytes for another encoding.
  if (HasZeroByte(text)) return wrong(1, "the text has a zero byte");
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder tree;
    if (!parser.HandleNextDocument(tree)) return Node();
    Node document = tree.Take();
    TreeBuilder more;
    if (parser.HandleNextDocument(more)) {
      return wrong(more.Take().line, "a second document begins; one is allowed");
    }
    return document;
  } catch (const Refused& refused) {
    return wrong(refused.line, refused.why);
  } catch (const YAML::Exception& error) {
    return wrong(LineOf(error.mark), absl::StrCat("this is not YAML: ", error.msg));
  }
}

}  // namespace gpushare::yaml
