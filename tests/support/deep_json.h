// JSON nested `levels` deep, in every way that text can nest.
#pragma once

#include <string>
#include <vector>

namespace etr::test {

// Complete documents, and some that end too early and must not cost more.
inline std::vector<std::string> deep_documents(int levels) {
  const auto repeated = [levels](const std::string& text) {
    std::string out;
    out.reserve(text.size() * static_cast<size_t>(levels));
    for (int i = 0; i < levels; ++i) out += text;
    return out;
  };
  return {
      repeated("[") + repeated("]"),
      repeated("{\"a\":") + "1" + repeated("}"),
      repeated("[{\"a\":") + "null" + repeated("}]"),
      repeated("[1,") + "2" + repeated(",3]"),
      repeated("[["),
      R"({"layers":)" + repeated(R"([{"layer":"residual","layers":)") + "[]" + repeated("}]") + "}",
  };
}

}  // namespace etr::test
