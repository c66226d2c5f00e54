#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli.h"
#include "core/nearest.h"
#include "help.h"

namespace cli {
namespace {

[[noreturn]] void wrong(const Command& command, const std::string& what) {
  throw UsageError(what + "; see 'echotrain " + command.name + " --help'");
}

// Returns the key of the job that such an option would set: "train.epochs" for "epochs". If several
// sections have the name, the first one here is the one meant.
std::string job_key(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> keys;
  for (const std::string& key : schema_names("job"))
    if (key.ends_with("." + name))
      keys.push_back(key.starts_with("mesh.") ? "parallel." + key : key);
  for (const char* section : {"train.", "parallel."})
    if (std::find(keys.begin(), keys.end(), section + name) != keys.end()) return section + name;
  return keys.empty() ? "" : keys.front();
}

const Option& option_row(const Command& command, const std::string& name) {
  std::vector<std::string> known;
  for (const Option& option : command.options) {
    if (name == option.name) return option;
    if (*option.former && name == option.former) {
      tell_new_name("--" + name, std::string("--") + option.name);
      return option;
    }
    known.push_back(option.name);
  }
  const bool takes_job = std::find(known.begin(), known.end(), "set") != known.end();
  const std::string key = takes_job ? job_key(name) : "";
  if (key.empty()) wrong(command, "unknown option --" + name + suggestion(name, known));
  const std::string near = etr::nearest(name, known);
  const bool is_slip = etr::edit_distance(name, near) == 1;
  wrong(command, "unknown option --" + name +
                     (is_slip ? " (did you mean '" + near + "'? '" + name + "'" : " (it") +
                     " is a key of the job: --set " + key + "=VALUE)");
}

// Parses the whole text as a number.
template <typename T>
T number_of(const Command& command, const std::string& name, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    wrong(command, "--" + name + " takes a number, not '" + text + "'");
  return value;
}

}  // namespace

Arguments::Arguments(const Command& command, const std::vector<std::string>& words)
    : command_(command) {
  bool only_operands = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (only_operands || word.size() < 2 || word[0] != '-') {
      operands_.push_back(word);
    } else if (word == "--") {
      only_operands = true;
    } else if (word == "-h" || word == "--help") {
      help_ = true;
      return;
    } else {
      i = take_option(words, i);
    }
  }
  const size_t most = most_operands(command);
  if (operands_.size() < least_operands(command))
    wrong(command, std::string("'") + command.name + "' takes " + command.operands);
  if (operands_.size() > most) wrong(command, "'" + operands_[most] + "' is one word too many");
}

namespace {

// Returns "--ranks" for "-n" and "--ranks=2" for "-n2"; any other word unchanged.
std::string long_form(const Command& command, const std::string& word) {
  for (const Option& option : command.options)
    if (option.letter && word[1] == option.letter)
      return std::string("--") + option.name + (word.size() > 2 ? "=" + word.substr(2) : "");
  return word;
}

}  // namespace

// Returns the position of the last word that belongs to the option.
size_t Arguments::take_option(const std::vector<std::string>& words, size_t at) {
  const std::string word = long_form(command_, words[at]);
  if (word[1] != '-') wrong(command_, "unknown option " + word + " (options begin with --)");
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  const Option& option = option_row(command_, name);
  const bool is_flag = !*option.value, has_value = equals != std::string::npos;
  if (is_flag && has_value) wrong(command_, "--" + name + " takes no value");
  if (!is_flag && !has_value && at + 1 >= words.size())
    wrong(command_, "--" + name + " needs a value, " + option.value);
  const std::string value = is_flag ? "" : has_value ? word.substr(equals + 1) : words[++at];
  if (const auto choices = choices_of(option.value);
      !choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())
    wrong(command_, "--" + name + " must be " + option.value + ", not '" + value + "'" +
                        suggestion(value, choices));
  values_.emplace_back(option.name, value);
  return at;
}

std::string Arguments::value(const std::string& name, const std::string& otherwise) const {
  const auto all = values(name);
  return all.empty() ? otherwise : all.back();
}

std::vector<std::string> Arguments::values(const std::string& name) const {
  std::vector<std::string> out;
  for (const auto& [key, value] : values_)
    if (key == name) out.push_back(value);
  return out;
}

double Arguments::number(const std::string& name, double otherwise) const {
  const auto all = values(name);
  if (all.empty()) return otherwise;
  const auto value = number_of<double>(command_, name, all.back());
  if (!std::isfinite(value) || value < 0)
    wrong(command_, "--" + name + " must be a number from 0, not '" + all.back() + "'");
  return value;
}

std::optional<int64_t> Arguments::integer(const std::string& name) const {
  const auto all = values(name);
  if (all.empty()) return std::nullopt;
  return number_of<int64_t>(command_, name, all.back());
}

int32_t Arguments::integer(const std::string& name, int32_t otherwise, int32_t least,
                           int32_t most) const {
  const auto given = integer(name);
  if (!given) return otherwise;
  if (*given < least || *given > most)
    throw UsageError("--" + name + " is a number from " + std::to_string(least) +
                     (most == INT32_MAX ? " on" : " to " + std::to_string(most)));
  return static_cast<int32_t>(*given);
}

}  // namespace cli
