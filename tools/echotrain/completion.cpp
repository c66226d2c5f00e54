// echotrain completion: scripts for the Tab key of shells.
#include <cstdio>

#include "arguments.h"
#include "cli.h"
#include "help.h"

namespace cli {
namespace {

enum class Completes { nothing, files, folders, words };

struct Candidates {
  Completes kind = Completes::nothing;
  std::vector<std::string> words;
};

// Returns the candidates for an operand or an option's value.
Candidates candidates(const Command& command, const std::string& value) {
  if (const auto choices = choices_of(value); !choices.empty()) return {Completes::words, choices};
  if (value == "FOLDER" || value == "FOLDER PREFIX") return {Completes::folders, {}};
  if (value.find("FILE") != std::string::npos || value.find("JOB.json") != std::string::npos ||
      value.find("METRICS") != std::string::npos || value.find("FOLDER") != std::string::npos)
    return {Completes::files, {}};
  if (value == "[NAME...]" || value == "[KEY...]")
    return {Completes::words, schema_names(command.name)};
  if (value == "[COMMAND]") {
    Candidates out{Completes::words, {}};
    for (const Command& other : commands()) out.words.push_back(other.name);
    return out;
  }
  return {};
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Puts a text in a shell's single quotes; fish escapes a quote in its own way.
std::string quoted(const std::string& text, const char* quote = "'\\''") {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? quote : std::string(1, c);
  return out + "'";
}

std::string command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return joined(names);
}

std::string option_names(const Command& command) {
  std::string out = "--help";
  for (const Option& option : command.options) out += std::string(" --") + option.name;
  return out;
}

std::string bash_reply(const Candidates& c) {
  switch (c.kind) {
    case Completes::files: return "COMPREPLY=($(compgen -f -- \"$word\"))";
    case Completes::folders: return "COMPREPLY=($(compgen -d -- \"$word\"))";
    case Completes::words:
      return "COMPREPLY=($(compgen -W " + quoted(joined(c.words)) + " -- \"$word\"))";
    case Completes::nothing: break;
  }
  return ":";
}

std::string bash() {
  std::string out =
      "# bash completion for echotrain; made by 'echotrain completion bash'\n"
      "_echotrain() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  COMPREPLY=()\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W " +
      quoted(command_names()) +
      " -- \"$word\"))\n"
      "    return\n  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands()) {
    out += std::string("    ") + command.name + ")\n      case $before in\n";
    for (const Option& option : command.options)
      if (*option.value)
        out += std::string("        --") + option.name + ") " +
               bash_reply(candidates(command, option.value)) + "; return ;;\n";
    out += "      esac\n      case $word in\n        -*) COMPREPLY=($(compgen -W " +
           quoted(option_names(command)) + " -- \"$word\")) ;;\n        *) " +
           bash_reply(candidates(command, command.operands)) + " ;;\n      esac ;;\n";
  }
  return out + "  esac\n}\ncomplete -F _echotrain echotrain\n";
}

// Escapes the characters that _arguments would interpret: colons, brackets and backslashes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Candidates& c) {
  switch (c.kind) {
    case Completes::files: return "_files";
    case Completes::folders: return "_files -/";
    case Completes::words: return "(" + joined(c.words) + ")";
    case Completes::nothing: break;
  }
  return " ";
}

std::string zsh() {
  std::string out =
      "#compdef echotrain\n# zsh completion for echotrain; made by 'echotrain completion zsh'\n"
      "_echotrain() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a names=(\n";
  for (const Command& command : commands())
    out += "      " + quoted(std::string(command.name) + ":" + command.doc) + "\n";
  out +=
      "    )\n    _describe command names\n    return\n  fi\n"
      "  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $name in\n";
  for (const Command& command : commands()) {
    out += std::string("    ") + command.name + ")\n      _arguments \\\n        " +
           quoted("(-h --help)--help[print the command's help]") + " \\\n";
    for (const Option& option : command.options)
      out += "        " +
             quoted((option.name == std::string("set") ? "*--" : "--") + std::string(option.name) +
                    "[" + zsh_text(option.doc) + "]" +
                    (*option.value ? ":" + zsh_text(option.value) + ":" +
                                         zsh_action(candidates(command, option.value))
                                   : "")) +
             " \\\n";
    out += "        " +
           quoted("*:" + zsh_text(*command.operands ? command.operands : "nothing") + ":" +
                  zsh_action(candidates(command, command.operands))) +
           " ;;\n";
  }
  return out +
         "  esac\n}\n"
         "if [ \"$funcstack[1]\" = _echotrain ]; then _echotrain \"$@\"; else compdef _echotrain "
         "echotrain; fi\n";
}

std::string fish_value(const Candidates& c) {
  switch (c.kind) {
    case Completes::files: return " -F";
    case Completes::folders: return " -a '(__fish_complete_directories)'";
    case Completes::words: return " -a " + quoted(joined(c.words), "\\'");
    case Completes::nothing: break;
  }
  return "";
}

std::string fish() {
  std::string out =
      "# fish completion for echotrain; made by 'echotrain completion fish'\n"
      "complete -c echotrain -f\n";
  for (const Command& command : commands()) {
    const std::string when =
        std::string("complete -c echotrain -n '__fish_seen_subcommand_from ") + command.name + "'";
    out += std::string("complete -c echotrain -n __fish_use_subcommand -a ") + command.name +
           " -d " + quoted(command.doc, "\\'") + "\n";
    if (const std::string value = fish_value(candidates(command, command.operands)); !value.empty())
      out += when + value + "\n";
    out += when + " -s h -l help -d 'print the command\\'s help'\n";
    for (const Option& option : command.options)
      out += when + " -l " + option.name +
             (*option.value ? " -r" + fish_value(candidates(command, option.value)) : "") + " -d " +
             quoted(option.doc, "\\'") + "\n";
  }
  return out;
}

}  // namespace

int command_completion(const Arguments& arguments) {
  const std::string& shell = arguments.operand(0);
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    throw UsageError("completion is for bash, zsh and fish, not '" + shell + "'");
  std::fputs((shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish()).c_str(), stdout);
  return 0;
}

}  // namespace cli
