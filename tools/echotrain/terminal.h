// What the command asks of the terminal and of signals; one implementation for each operating
// system.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace cli {

// Returns the words after the program's name, in UTF-8, and has a console show UTF-8 from then on.
std::vector<std::string> words_of(int argc, char** argv);

bool output_is_terminal();  // checked at each call: it changes with silence_output()
bool errors_are_on_terminal();

// Returns the number of columns of standard output's terminal, or 0 if it is no terminal.
size_t terminal_columns();

// Sends standard output nowhere, and back to where it went. Calls in a row count as one.
void silence_output();
void restore_output();

// Returns `word` as a command line of this system has it: in quotes, where it is not plain.
std::string as_word(const std::string& word);

// For signal handlers: writes `text` to standard error and ends the process.
[[noreturn]] void end_with(const char* text, int status) noexcept;

// Handles SIGINT and SIGTERM while it lives; afterwards they do what they did before.
class SignalSetting {
 public:
  // `stays`: handles every signal, not just the first.
  SignalSetting(void (*handler)(int), bool stays);
  ~SignalSetting();
  SignalSetting(const SignalSetting&) = delete;
  SignalSetting& operator=(const SignalSetting&) = delete;

 private:
  struct Former;
  std::unique_ptr<Former> former_;
};

}  // namespace cli
