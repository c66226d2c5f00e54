// echotrain stages, layers, models, optimizers and job: lists them with all options.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "cli.h"
#include "help.h"

namespace cli {

using Json = nlohmann::ordered_json;

namespace {

Json schema(const std::string& kind) {
  char* text = nullptr;
  check(etr_schema(kind.c_str(), &text));
  return Json::parse(take_string(text));
}

// Returns the row of this name in a list of stages, layers, models or optimizers.
Json row_of(const Json& all, const std::string& kind, const std::string& name) {
  for (const Json& row : all)
    if (row["name"] == name) return row;
  throw Failure("there is no '" + name + "' among the " + kind +
                suggestion(name, schema_names(kind)) + "; 'echotrain " + kind + "' lists them all");
}

// Returns the options of a job's section, or the one that "section.option" names.
Json options_of(const Json& sections, const std::string& key) {
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot);
  if (sections.contains(section)) {
    if (dot == std::string::npos) return sections[section];
    for (const Json& option : sections[section])
      if (option["name"] == key.substr(dot + 1)) return Json::array({option});
  }
  throw Failure("a job has no key '" + key + "'" + suggestion(key, schema_names("job")));
}

std::string type_text(const Json& option) {
  if (!option.contains("choices")) return option["type"];
  std::string out;
  for (const Json& choice : option["choices"])
    out += (out.empty() ? "" : "|") + choice.get<std::string>();
  return out;
}

void print_options(const Json& options) {
  for (const Json& option : options)
    std::printf("    %-22s %-18s %-12s %s\n", option["name"].get<std::string>().c_str(),
                type_text(option).c_str(),
                option.contains("default") ? option["default"].dump().c_str() : "required",
                option["doc"].get<std::string>().c_str());
  std::printf("\n");
}

// Returns what the operands select, in the form of the whole schema.
Json chosen(const std::string& kind, const std::vector<std::string>& names) {
  const Json all = schema(kind);
  if (names.empty()) return all;
  Json out = all.is_object() ? Json::object() : Json::array();
  for (const std::string& name : names)
    if (all.is_object())
      out[name.substr(0, name.find('.'))] = options_of(all, name);
    else
      out.push_back(row_of(all, kind, name));
  return out;
}

}  // namespace

std::vector<std::string> schema_names(const std::string& kind) {
  const Json all = schema(kind);
  std::vector<std::string> out;
  for (const auto& [key, row] : all.items()) {
    out.push_back(all.is_object() ? key : row["name"].get<std::string>());
    if (all.is_object())
      for (const Json& option : row) out.push_back(key + "." + option["name"].get<std::string>());
  }
  return out;
}

int command_schema(const Arguments& arguments) {
  const Json shown = chosen(arguments.command().name, arguments.operands());
  if (arguments.flag("json")) {
    std::printf("%s\n", shown.dump().c_str());
    return 0;
  }
  for (const auto& [key, row] : shown.items()) {
    if (shown.is_object())
      std::printf("%s\n", key.c_str());
    else
      std::printf("%s  – %s\n", row["name"].get<std::string>().c_str(),
                  row["doc"].get<std::string>().c_str());
    print_options(shown.is_object() ? row : row["options"]);
  }
  return 0;
}

}  // namespace cli
