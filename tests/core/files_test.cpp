// Files that are shortened, pipes without a writer, limits on the size of files, names that are not
// UTF-8.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/platform.h"
#include "core/platform_files.h"
#include "core/text.h"
#include "core/utf8.h"
#include "support/child.h"
#include "support/data.h"

namespace etr::test {
namespace {

using platform::InputFile;
using platform::OutputFile;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Error file_error(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

TEST(ListFolder, HasNamesAndTypes) {
  namespace fs = std::filesystem;
  const TempDir dir;
  std::ofstream(dir.path("file")) << "x";
  fs::create_directory(dir.path("folder"));
  fs::create_symlink("nowhere", dir.path("link"));
  ASSERT_EQ(::mkfifo(dir.path("pipe").c_str(), 0600), 0);
  std::error_code error;
  std::map<std::string, fs::file_type> found;
  for (const auto& [name, type] : platform::list_folder(dir.path(), error)) found[name] = type;
  EXPECT_FALSE(error);
  const std::map<std::string, fs::file_type> expected{{"file", fs::file_type::regular},
                                                      {"folder", fs::file_type::directory},
                                                      {"link", fs::file_type::symlink},
                                                      {"pipe", fs::file_type::fifo}};
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(platform::list_folder(dir.path("folder"), error).empty());
  EXPECT_FALSE(error);
  EXPECT_TRUE(platform::list_folder(dir.path("nothing"), error).empty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_TRUE(platform::list_folder(dir.path("file"), error).empty());
  EXPECT_EQ(error, std::errc::not_a_directory);
}

TEST(WriteFileAtomic, LeavesNothingWhereItCannotRename) {
  TempDir dir;
  std::filesystem::create_directory(dir.path("folder"));
  EXPECT_EQ(
      file_error([&] { platform::write_file_atomic(dir.path("folder"), bytes_of("x")); }).code(),
      Code::io);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(InputFile, OnlyWhatIsReadIsLookedForElsewhere) {
  TempDir dir;
  const std::string none = dir.path("none");
  const Error read = file_error([&] { InputFile input(none); });
  EXPECT_EQ(read.code(), Code::not_found);
  EXPECT_NE(std::string(read.what()).find("If it was moved"), std::string::npos) << read.what();
  const Error written = file_error([&] { platform::sync_directory(none); });
  EXPECT_EQ(written.code(), Code::not_found);
  EXPECT_EQ(std::string(written.what()).find("If it was moved"), std::string::npos)
      << written.what();
}

TEST(WriteFileAtomic, FollowsLinksAndLeavesPipesAlone) {
  TempDir dir;
  platform::write_file_atomic(dir.path("file"), bytes_of("old"));
  std::filesystem::create_symlink("file", dir.path("link"));
  platform::write_file_atomic(dir.path("link"), bytes_of("new"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir.path("link")));
  EXPECT_EQ(platform::read_file(dir.path("file")), "new");
  ASSERT_EQ(::mkfifo(dir.path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", dir.path("to_pipe"));
  for (const char* name : {"pipe", "to_pipe"})
    EXPECT_EQ(
        file_error([&] { platform::write_file_atomic(dir.path(name), bytes_of("x")); }).code(),
        Code::io);
  EXPECT_TRUE(std::filesystem::is_fifo(dir.path("pipe")));
}

TEST(WriteFileAtomic, ThreadsWriteOneFile) {
  TempDir dir;
  const auto write = [&] {
    for (int i = 0; i < 50; ++i) platform::write_file_atomic(dir.path("f"), bytes_of("whole"));
  };
  Error other(Code::ok, "");
  std::thread thread([&] { other = file_error(write); });
  const Error mine = file_error(write);
  thread.join();
  EXPECT_EQ(mine.code(), Code::ok) << mine.what();
  EXPECT_EQ(other.code(), Code::ok) << other.what();
  EXPECT_EQ(platform::read_file(dir.path("f")), "whole");
}

TEST(InputFile, SaysThatItWasShortened) {
  TempDir dir;
  const std::string path = dir.path("f");
  std::ofstream(path) << std::string(10000, 'x');
  const InputFile file(path);
  std::filesystem::resize_file(path, 100);
  std::byte out[100];
  file.read_at(0, out);
  const Error error = file_error([&] { file.read_at(50, out); });
  EXPECT_EQ(error.code(), Code::io);
  EXPECT_NE(std::string(error.what()).find("it was shortened"), std::string::npos) << error.what();
}

TEST(InputFile, WaitsForAPipesWriterUntilItIsInterrupted) {
  TempDir dir;
  const std::string path = dir.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Interrupt interrupt;
  InputFile file(path, &interrupt);
  EXPECT_FALSE(file.is_regular());
  std::byte out[4];
  Code code = Code::ok;
  std::thread reader([&] { code = file_error([&] { file.read(out); }).code(); });
  interrupt.stop();  // before or while it waits
  reader.join();
  EXPECT_EQ(code, Code::cancelled);
}

TEST(InputFile, ReadsAPipeToItsEnd) {
  TempDir dir;
  const std::string path = dir.path("pipe"), text(300'000, 'p');
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Interrupt interrupt;
  InputFile file(path, &interrupt);
  std::thread writer([&] { std::ofstream(path) << text; });
  std::string out(text.size() + 1, ' ');
  const size_t got = file.read(std::as_writable_bytes(std::span(out)));
  writer.join();
  EXPECT_EQ(out.substr(0, got), text);
}

TEST(InputFile, RefusesWhatIsNoFile) {
  TempDir dir;
  EXPECT_EQ(file_error([&] { InputFile file(dir.path()); }).code(), Code::io);
  EXPECT_EQ(file_error([&] { InputFile file(dir.path("none")); }).code(), Code::not_found);
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(file_error([&] { platform::read_file(dir.path("pipe")); }).code(), Code::io)
      << "and does not wait for a writer";
}

int signals_seen = 0;

TEST(Files, DocumentsHaveALimit) {
  TempDir dir;
  const std::string path = dir.path("job.json");
  std::ofstream(path) << "{}";
  EXPECT_EQ(platform::read_document(path), "{}");
  std::filesystem::resize_file(path, platform::kMostOfDocument + 1);
  const Error error = file_error([&] { platform::read_document(path); });
  EXPECT_EQ(error.code(), Code::unsupported);
  EXPECT_NE(std::string(error.what()).find("job.json' has 67108865 bytes"), std::string::npos);
}

// Beside the file that was asked for, the name of a temporary one would puzzle, and could be too
// long.
TEST(Files, ErrorsNameTheFileThatWasAskedFor) {
  TempDir dir;
  const std::string missing = dir.path("nowhere/model.onnx");
  const Error error = file_error([&] { platform::write_file_atomic(missing, bytes_of("x")); });
  EXPECT_NE(std::string(error.what()).find("cannot create '" + missing + "'"), std::string::npos)
      << error.what();
  EXPECT_EQ(std::string(error.what()).find(".tmp"), std::string::npos);
  platform::write_file_atomic(dir.path(std::string(255, 'n')), bytes_of("x"));
  for (const auto& write : {std::function<void()>([] { platform::write_file_atomic("", {}); }),
                            std::function<void()>([] { platform::read_file(""); })})
    EXPECT_EQ(file_error(write).code(), Code::invalid_argument);
}

// The system would end the process by SIGXFSZ.
TEST(OutputFile, ALimitOnTheSizeOfFilesIsAnError) {
  TempDir dir;
  const std::string large(200'000, 'x');
  const auto too_large = [&](const std::function<void()>& write) {
    return in_child([&] {
      if (!limit_files(100'000)) return 1;
      const Error error = file_error(write);
      if (error.code() != Code::io) return 2;
      return std::string(error.what()).find("File too large") == std::string::npos ? 3 : 0;
    });
  };
  EXPECT_EQ(too_large([&] { platform::write_file_atomic(dir.path("a"), bytes_of(large)); }), 0);
  EXPECT_FALSE(std::filesystem::exists(dir.path("a")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "nothing half done stays";
  EXPECT_EQ(too_large([&] {
              OutputFile file(dir.path("b"), OutputFile::Mode::replace);
              for (int i = 0; i < 200; ++i) file.write(large.substr(0, 1000));
              file.close();
            }),
            0);
  EXPECT_EQ(too_large([&] {
              platform::ScratchFile file(dir.path());
              file.write(50'000, bytes_of(large));
            }),
            0);
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, [](int) { ++signals_seen; });
              limit_files(100'000);
              file_error([&] { platform::write_file_synced(dir.path("c"), bytes_of(large)); });
              return signals_seen;
            }),
            0)
      << "the program's own handler hears nothing of the library's files";
}

// What a killed process or a full disk leaves may be longer than any line should be.
TEST(Files, AnUnfinishedLastLineIsCutOff) {
  TempDir dir;
  const std::string path = dir.path("lines");
  const std::string longer = "{" + std::string(200'000, 'x');
  for (const auto& [text, left] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"{a\n{b\n", "{a\n{b\n"},
           {"{a\n{b\n{c", "{a\n{b\n"},
           {"{", ""},
           {"{a\n" + longer, "{a\n"},
           {longer + "\n" + longer, longer + "\n"},
           {longer + "\n", longer + "\n"},
           {longer + "\nprose", longer + "\nprose"},  // a file of another kind
           {"prose", "prose"}}) {
    std::ofstream(path) << text;
    platform::cut_unfinished_line(path);
    EXPECT_EQ(platform::read_file(path), left);
  }
  platform::cut_unfinished_line(dir.path("none"));
  EXPECT_FALSE(std::filesystem::exists(dir.path("none")));
  platform::cut_unfinished_line(dir.path());
}

TEST(Files, PipesDevicesAndFoldersAreNoPlaceForAFile) {
  TempDir dir;
  std::ofstream(dir.path("file")) << "x";
  std::filesystem::create_symlink("/dev/zero", dir.path("link"));
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  for (const char* name : {"file", "none", "none/file"})
    EXPECT_TRUE(platform::is_file_or_free(dir.path(name))) << name;
  EXPECT_TRUE(platform::is_file_or_free("/dev/null"));
  for (const std::string& path : {dir.path("pipe"), dir.path("link"), dir.path()})
    EXPECT_FALSE(platform::is_file_or_free(path)) << path;
}

TEST(Utf8, KeepsWhatIsValidAndEscapesTheRest) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
      {"caf\xE9.png", "caf\\xE9.png"},
      {"\xC0\xAF", "\\xC0\\xAF"},                    // overlong
      {"\xED\xA0\x80", "\\xED\\xA0\\x80"},           // a surrogate
      {"\xF4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"},  // above U+10FFFF
      {"\xE2\x82", "\\xE2\\x82"},                    // cut off
      {std::string("a\0b", 3), "a\\x00b"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(as_utf8(text), expected);
  // Whatever the bytes are, JSON takes them.
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second), '\x80', 'x'};
      EXPECT_NO_THROW(Json(as_utf8(text)).dump()) << first << " " << second;
    }
  EXPECT_STREQ(Error(Code::io, "no '\xFF'").what(), "no '\\xFF'");
}

TEST(Text, NumbersHaveOneSign) {
  EXPECT_EQ(parse_number<double>("+1.5", "x", "a number"), 1.5);
  EXPECT_EQ(parse_integer("-3", "x"), -3);
  for (const char* text : {"+-1", "++1", "-+1", "--1", "+", "", "1e400", "-1e400"})
    EXPECT_THROW(parse_number<double>(text, "x", "a number"), Error) << text;
}

}  // namespace
}  // namespace etr::test
