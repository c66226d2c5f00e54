#include "support/xml.h"

#include <set>
#include <vector>

namespace etr::test {
namespace {

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  std::string problem() {
    if (text_.starts_with("<?xml")) at_ = text_.find("?>") + 2;
    while (problem_.empty() && at_ < text_.size()) {
      if (text_[at_] == '<')
        tag();
      else
        character();
    }
    if (problem_.empty() && !open_.empty()) wrong("<" + open_.back() + "> is not closed");
    if (problem_.empty() && roots_ != 1) wrong("there is not one root");
    return problem_;
  }

 private:
  void wrong(const std::string& what) {
    if (problem_.empty())
      problem_ = what + " at " + std::to_string(at_) + ": " +
                 std::string(text_.substr(at_ < 40 ? 0 : at_ - 40, 100));
  }

  void character() {
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r')
      wrong("a control character");
    if (open_.empty() && c != '\n' && c != ' ') wrong("text outside the root");
    if (c == '&') entity();
    ++at_;
  }

  void entity() {
    const std::string_view rest = text_.substr(at_, 8);
    for (const char* known : {"&amp;", "&lt;", "&gt;", "&#39;", "&quot;"})
      if (rest.starts_with(known)) return;
    wrong("an entity that is not known");
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::string_view("-_:").find(text_[at_]) != std::string_view::npos))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void tag() {
    ++at_;
    if (at_ < text_.size() && text_[at_] == '/') return closing();
    const std::string element = name();
    if (element.empty()) return wrong("a tag without a name");
    if (open_.empty()) ++roots_;
    std::set<std::string> seen;
    while (problem_.empty()) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
      if (at_ >= text_.size()) return wrong("a tag that does not end");
      if (text_[at_] == '>') return ++at_, open_.push_back(element);
      if (text_.substr(at_).starts_with("/>")) return at_ += 2, void();
      attribute(seen);
    }
  }

  void closing() {
    ++at_;
    const std::string element = name();
    if (open_.empty() || open_.back() != element) return wrong("</" + element + "> closes nothing");
    open_.pop_back();
    if (at_ >= text_.size() || text_[at_] != '>') return wrong("a tag that does not end");
    ++at_;
  }

  void attribute(std::set<std::string>& seen) {
    const std::string key = name();
    if (key.empty()) return wrong("an attribute without a name");
    if (!seen.insert(key).second) return wrong("the attribute " + key + " twice");
    if (!text_.substr(at_).starts_with("='")) return wrong("an attribute without a value");
    for (at_ += 2; problem_.empty() && at_ < text_.size() && text_[at_] != '\''; ++at_) {
      if (text_[at_] == '<') wrong("< in an attribute");
      if (text_[at_] == '&') entity();
    }
    ++at_;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

}  // namespace

std::string xml_problem(std::string_view text) { return Checker(text).problem(); }

}  // namespace etr::test
