// echotrain help, and --help of every command.
#include "help.h"

#include <cstdio>

#include "arguments.h"
#include "cli.h"

namespace cli {
namespace {

constexpr size_t kWidth = 100;

// Wraps the text into lines that begin at `column`; the first line continues at the cursor.
std::string wrapped(const std::string& text, size_t column) {
  std::string out;
  size_t at = column;
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] == '\n') {
      out += "\n" + std::string(text[begin + 1] == '\n' ? 0 : column, ' ');
      at = column;
      ++begin;
      continue;
    }
    if (at == column && text[begin] == ' ') {  // examples are indented
      out += ' ';
      ++begin;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    if (at > column && at + 1 + end - begin > kWidth) {
      out += "\n" + std::string(column, ' ');
      at = column;
    }
    if (at > column) out += ' ';
    out += text.substr(begin, end - begin);
    at += (at > column) + end - begin;
    begin = end + (end < text.size() && text[end] == ' ');
  }
  return out;
}

std::string row(const std::string& head, const std::string& text, size_t column) {
  std::string out = "  " + head;
  if (out.size() + 2 > column)
    out += "\n" + std::string(column, ' ');
  else
    out.resize(column, ' ');
  return out + wrapped(text, column) + "\n";
}

std::string overview() {
  std::string out =
      "echotrain: keeps accelerators busy while they train\n\n"
      "usage: echotrain COMMAND [OPERANDS] [OPTIONS]\n\n";
  for (const Command& command : commands())
    out += row(command.name + std::string(*command.operands ? " " : "") + command.operands,
               command.doc, 30);
  return out +
         "\n'echotrain COMMAND --help' prints a command's options. From a folder of images to a "
         "prediction:\n\n"
         "  echotrain pack images/ shards/train --validation 0.1\n"
         "  echotrain init shards/ job.json\n"
         "  echotrain train job.json\n"
         "  echotrain predict job.json photo.jpg\n";
}

}  // namespace

std::string usage_of(const Command& command) {
  std::string out = std::string("echotrain ") + command.name;
  if (*command.operands) out += std::string(" ") + command.operands;
  for (const Option& option : command.options)
    out += std::string(" [--") + option.name + (*option.value ? " " : "") + option.value + "]";
  return out;
}

std::string help_of(const Command& command) {
  std::string out = "usage: " + wrapped(usage_of(command), 7) + "\n\n";
  std::string doc = command.doc;
  doc[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(doc[0])));
  out += wrapped(doc + ".", 0) + "\n";
  if (*command.details) out += "\n" + wrapped(command.details, 0) + "\n";
  if (!command.options.empty()) out += "\n";
  for (const Option& option : command.options)
    out += row((option.letter ? std::string("-") + option.letter + ", --" : std::string("--")) +
                   option.name + (*option.value ? " " : "") + option.value,
               option.doc, 30);
  return out;
}

int command_help(const Arguments& arguments) {
  const std::string text =
      arguments.operands().empty() ? overview() : help_of(find_command(arguments.operand(0)));
  std::fputs(text.c_str(), stdout);
  return 0;
}

int command_version(const Arguments&) {
  std::printf("echotrain %s\n", etr_version());
  return 0;
}

}  // namespace cli
