// Parses the words after a command's name according to the table of commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"

namespace cli {

// "--name value", "--name=value", "--flag", and operands; all words after "--" are operands.
class Arguments {
 public:
  // Throws UsageError for an unknown option, a missing value, and too few or too many operands.
  Arguments(const Command& command, const std::vector<std::string>& words);

  bool help() const { return help_; }  // -h or --help was given: nothing else was checked
  const Command& command() const { return command_; }

  // Returns the last value if an option is given more than once.
  std::string value(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> values(const std::string& name) const;
  double number(const std::string& name, double otherwise) const;
  std::optional<int64_t> integer(const std::string& name) const;
  // UsageError unless it is given as `otherwise`, or from `least` to `most`.
  int32_t integer(const std::string& name, int32_t otherwise, int32_t least,
                  int32_t most = INT32_MAX) const;
  bool flag(const std::string& name) const { return !values(name).empty(); }
  const std::vector<std::string>& operands() const { return operands_; }
  const std::string& operand(size_t position) const { return operands_[position]; }

 private:
  size_t take_option(const std::vector<std::string>& words, size_t at);

  const Command& command_;
  bool help_ = false;
  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::string> operands_;
};

}  // namespace cli
