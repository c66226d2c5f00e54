#ifndef NOMINMAX  // platform_paths_windows.h may have
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <io.h>
#include <windows.h>
// after windows.h, which it needs
#include <shellapi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "terminal.h"

namespace cli {
namespace {

constexpr int kOutput = 1, kErrors = 2;  // numbers of the C library

int outside = -1;    // the original standard output, while it is silenced
UINT code_page = 0;  // the console's own

// A handler is called once; the C library then resets the signal.
void (*staying)(int) = nullptr;

void call_again(int number) {
  std::signal(number, call_again);
  if (staying) staying(number);
}

// Lets the console understand the sequences that erase a line.
bool is_console(int file) {
  const HANDLE handle = reinterpret_cast<HANDLE>(::_get_osfhandle(file));
  DWORD mode = 0;
  return ::_isatty(file) && ::GetConsoleMode(handle, &mode) &&
         ::SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

}  // namespace

// main()'s are in the system's code page, which lacks most of the characters that names may have.
std::vector<std::string> words_of(int, char**) {
  code_page = ::GetConsoleOutputCP();
  ::SetConsoleOutputCP(CP_UTF8);
  std::atexit([] { ::SetConsoleOutputCP(code_page); });
  int count = 0;
  wchar_t** const words = ::CommandLineToArgvW(::GetCommandLineW(), &count);
  std::vector<std::string> out;
  for (int i = 1; words && i < count; ++i) {
    const std::u8string word = std::filesystem::path(words[i]).u8string();
    out.emplace_back(word.begin(), word.end());
  }
  ::LocalFree(words);
  return out;
}

std::string as_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t&()[]{}^=;!'+,`~|<>") == word.npos;
  return plain ? word : "\"" + word + "\"";
}

bool output_is_terminal() { return is_console(kOutput); }

bool errors_are_on_terminal() { return is_console(kErrors); }

size_t terminal_columns() {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (!::GetConsoleScreenBufferInfo(::GetStdHandle(STD_OUTPUT_HANDLE), &info)) return 0;
  return static_cast<size_t>(info.srWindow.Right - info.srWindow.Left + 1);
}

void silence_output() {
  if (outside >= 0) return;
  std::fflush(stdout);
  outside = ::_dup(kOutput);
  std::FILE* const nowhere = std::fopen("NUL", "w");
  if (!nowhere) return;
  ::_dup2(::_fileno(nowhere), kOutput);
  std::fclose(nowhere);
}

void restore_output() {
  if (outside < 0) return;
  std::fflush(stdout);
  ::_dup2(outside, kOutput);
  ::_close(std::exchange(outside, -1));
}

void end_with(const char* text, int status) noexcept {
  ::_write(kErrors, text, static_cast<unsigned>(std::strlen(text)));
  std::_Exit(status);
}

struct SignalSetting::Former {
  void (*interrupt)(int) = nullptr;
  void (*terminate)(int) = nullptr;
};

SignalSetting::SignalSetting(void (*handler)(int), bool stays)
    : former_(std::make_unique<Former>()) {
  if (stays) staying = handler;
  former_->interrupt = std::signal(SIGINT, stays ? call_again : handler);
  former_->terminate = std::signal(SIGTERM, stays ? call_again : handler);
}

SignalSetting::~SignalSetting() {
  std::signal(SIGINT, former_->interrupt);
  std::signal(SIGTERM, former_->terminate);
}

}  // namespace cli
