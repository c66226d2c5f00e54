// The table of commands, used by parsing, help, the manual page and shell completion.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cli {

class Arguments;

struct Option {
  const char* name;   // without the dashes
  const char* value;  // its argument: "N", "FILE", "FOLDER", or choices "a|b|c"; "": a flag
  const char* doc;
  char letter = 0;          // short form: -n
  const char* former = "";  // an earlier name, which is still accepted
};

struct Command {
  const char* name;
  const char* operands;  // "JOB.json FILE.onnx", "FOLDER [JOB.json]", "[NAME...]"
  const char* doc;       // one sentence, without its full stop
  const char* details;   // paragraphs, separated by empty lines; may be ""
  std::vector<Option> options;
  int (*run)(const Arguments& arguments);  // returns the exit status
  const char* former = "";                 // an earlier name, which is still accepted
};

const std::vector<Command>& commands();
const Command& find_command(const std::string& name);  // UsageError suggests the nearest

size_t least_operands(const Command& command);
size_t most_operands(const Command& command);

// Returns the choices in "a|b|c"; none for "FILE".
std::vector<std::string> choices_of(const std::string& value);

int command_completion(const Arguments& arguments);
int command_demo(const Arguments& arguments);
int command_devices(const Arguments& arguments);
int command_eval(const Arguments& arguments);
int command_explain(const Arguments& arguments);
int command_export(const Arguments& arguments);
int command_help(const Arguments& arguments);
int command_init(const Arguments& arguments);
int command_launch(const Arguments& arguments);
int command_manual(const Arguments& arguments);
int command_pack(const Arguments& arguments);
int command_predict(const Arguments& arguments);
int command_profile(const Arguments& arguments);
int command_report(const Arguments& arguments);
int command_schema(const Arguments& arguments);
int command_parameter_server(const Arguments& arguments);
int command_study(const Arguments& arguments);
int command_train(const Arguments& arguments);
int command_advise(const Arguments& arguments);
int command_tune_pipeline(const Arguments& arguments);
int command_tune_kernels(const Arguments& arguments);
int command_version(const Arguments& arguments);

}  // namespace cli
