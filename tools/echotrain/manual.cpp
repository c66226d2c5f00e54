// echotrain manual: the manual page, in man(7) format.
#include <cstdio>

#include "arguments.h"
#include "cli.h"
#include "help.h"

namespace cli {
namespace {

// Escapes text so that roff prints it as it is, in lines of about 70 characters.
std::string escaped(const std::string& text) {
  std::string out;
  size_t line = 0;
  for (const char c : text) {
    line = c == '\n' ? 0 : line + 1;
    if (c == ' ' && line > 60) {
      out += '\n';
      line = 0;
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\n') {
      if (!out.empty() && out.back() == '\n') out += ".PP";
      out += '\n';
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string section_of(const Command& command) {
  std::string out =
      ".SS " +
      escaped(std::string(command.name) + (*command.operands ? " " : "") + command.operands) + "\n";
  out += escaped(std::string(1, static_cast<char>(std::toupper(command.doc[0]))) +
                 (command.doc + 1) + ".") +
         "\n";
  if (*command.details) out += ".PP\n" + escaped(command.details) + "\n";
  for (const Option& option : command.options) {
    out += ".TP\n\\fB" + escaped(std::string("--") + option.name) + "\\fR";
    if (*option.value) out += " \\fI" + escaped(option.value) + "\\fR";
    out += "\n" + escaped(option.doc) + "\n";
  }
  return out;
}

constexpr const char* kEnd = R"(.SH EXIT STATUS
0 on success, 1 on an error, 2 where the command line is wrong, 130 after Ctrl\-C and 143 after SIGTERM.
.SH EXAMPLES
From a folder of images, a folder for each class, to a prediction:
.PP
.nf
echotrain pack images/ shards/train \-\-validation 0.1
echotrain init shards/ job.json
echotrain train job.json
echotrain predict job.json photo.jpg
.fi
)";

}  // namespace

int command_manual(const Arguments&) {
  std::string out = std::string(".TH ECHOTRAIN 1 \"\" \"EchoTrain ") + etr_version() +
                    "\" \"User Commands\"\n"
                    ".SH NAME\nechotrain \\- keeps accelerators busy while they train\n"
                    ".SH SYNOPSIS\n.B echotrain\n.I COMMAND\n[\\fIOPERANDS\\fR] [\\fIOPTIONS\\fR]\n"
                    ".SH COMMANDS\n";
  for (const Command& command : commands()) out += section_of(command);
  std::fputs((out + kEnd).c_str(), stdout);
  return 0;
}

}  // namespace cli
