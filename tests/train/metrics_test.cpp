// Files of metrics: what is cut off when a run resumes, and that nothing else is lost. Also claims
// of folders.
#include "train/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "support/child.h"
#include "support/data.h"
#include "train/folder_claim.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;
using train::JsonLines;

std::string row(const char* kind, uint64_t step) {
  return Json{{"kind", kind}, {"step", step}}.dump() + "\n";
}

std::string rows(uint64_t begin, uint64_t end) {
  std::string text;
  for (uint64_t step = begin; step < end; ++step) text += row("step", step);
  return text;
}

std::string put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return path;
}

// Writes `text` to a file, cuts off the rows after `last`, and returns what is left.
std::string cut(const TempDir& dir, const std::string& text, train::LastRow last) {
  const std::string path = put(dir.path("metrics.jsonl"), text);
  train::cut_rows_after(path, last);
  return platform::read_file(path);
}

TEST(Metrics, AnUnfinishedLineIsCutOff) {
  TempDir dir;
  for (const std::string& whole : {std::string(), rows(0, 1), rows(0, 9000)}) {
    for (const std::string& rest :
         {std::string(), std::string("{"), std::string(R"({"kind": "st)")}) {
      const std::string path = put(dir.path("metrics.jsonl"), whole + rest);
      JsonLines lines(path);
      EXPECT_TRUE(platform::read_file(path) == whole) << whole.size() << " " << rest;
    }
  }
  const std::string foreign(size_t{1} << 17, 'x');  // longer than any row
  JsonLines lines(put(dir.path("foreign"), foreign));
  EXPECT_TRUE(platform::read_file(dir.path("foreign")) == foreign);
}

TEST(Metrics, RowsThatComeAgainAreCutOff) {
  TempDir dir;
  const std::string evaluation = row("evaluation", 5), note = "{\"note\": \"mine\"}\n";
  EXPECT_TRUE(cut(dir, rows(1, 20000), {5}) == rows(1, 6)) << "read in more than one piece";
  EXPECT_EQ(cut(dir, rows(6, 9), {5}), "");
  EXPECT_EQ(cut(dir, rows(1, 6) + evaluation + rows(6, 9), {5, true}), rows(1, 6) + evaluation);
  EXPECT_EQ(cut(dir, rows(1, 6) + evaluation + rows(6, 9), {5, false}), rows(1, 6));
  EXPECT_EQ(cut(dir, rows(1, 6) + note + rows(6, 9) + "{\"ki", {5}), rows(1, 6) + note);
  EXPECT_EQ(cut(dir, rows(1, 9) + note, {5}), rows(1, 9) + note);
  EXPECT_EQ(cut(dir, rows(1, 6), {5}), rows(1, 6));
}

// Zeros are what a file system leaves of what had not reached the disk, also in front of rows that
// had.
TEST(Metrics, ZerosAfterALossOfPowerAreCutOff) {
  TempDir dir;
  const std::string note = "{\"note\": \"mine\"}\n";
  for (const size_t count : {1u, 200u, 300'000u}) {
    const std::string zeros(count, '\0');
    for (const std::string& rest : {zeros, zeros + "\n", zeros + rows(7, 9), row("step", 6) + zeros,
                                    zeros + "\n" + rows(6, 8) + zeros + rows(8, 9)}) {
      EXPECT_TRUE(cut(dir, rows(1, 6) + rest, {5}) == rows(1, 6)) << count;
      EXPECT_TRUE(cut(dir, rows(1, 6) + note + rest, {5}) == rows(1, 6) + note) << count;
      EXPECT_EQ(cut(dir, rest, {0}), "") << "a run that begins anew";
    }
    EXPECT_TRUE(cut(dir, zeros + "\n" + rows(6, 9), {5}) == zeros + "\n") << "has no earlier row";
  }
}

// A sparse file stands for one with millions of rows. With little memory only its end can be read.
TEST(Metrics, OfALargeFileTheEndIsRead) {
  TempDir dir;
  const std::string path = put(dir.path("metrics.jsonl"), row("step", 1));
  constexpr uint64_t kHole = uint64_t{256} << 20;
  fs::resize_file(path, kHole);
  std::ofstream(path, std::ios::binary | std::ios::app) << "\n" << rows(3, 9);
  EXPECT_EQ(in_child([&] {
              if (!limit_memory(int64_t{32} << 20)) return 90;
              try {
                train::cut_rows_after(path, {5});
              } catch (const std::bad_alloc&) {
                return 1;
              }
              return 0;
            }),
            0);
  EXPECT_EQ(fs::file_size(path), kHole + 1 + rows(3, 6).size());
}

// A file may be writable but not readable.
TEST(Metrics, AFileThatCannotBeReadIsLeftAlone) {
  TempDir dir;
  const std::string path = put(dir.path("metrics.jsonl"), rows(1, 9));
  chmod(dir.path().c_str(), 0755);  // for the child, which runs as another user
  chmod(path.c_str(), 0222);
  const auto names_it = [&](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what()).find("'" + path + "': Permission denied") !=
             std::string::npos;
    }
    return false;
  };
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && seteuid(65534) != 0) return 90;  // root may read everything
              const bool opened = names_it([&] { JsonLines lines(path); });
              const bool cut = names_it([&] { train::cut_rows_after(path, {5}); });
              const bool looked = names_it([&] { JsonLines::may_be(path); });
              return opened + 2 * cut + 4 * looked;
            }),
            7);
  chmod(path.c_str(), 0644);
  EXPECT_EQ(platform::read_file(path), rows(1, 9));
}

// Each thread removes the folders that it has made while the other one makes or locks them.
TEST(FolderClaim, BearsWithOneThatEndsMeanwhile) {
  TempDir dir;
  std::atomic<int> claims = 0;
  std::string problems[2];
  const auto claim_often = [&](std::string& problem) {
    for (int i = 0; i < 500; ++i) try {
        const train::FolderClaim claim(dir.path("runs/a"));
        ++claims;
      } catch (const Error& error) {
        if (error.code() != Code::state) problem = error.what();
      }
  };
  std::thread other([&] { claim_often(problems[0]); });
  claim_often(problems[1]);
  other.join();
  EXPECT_EQ(problems[0] + problems[1], "");
  EXPECT_GT(claims, 0);
  EXPECT_FALSE(fs::exists(dir.path("runs/a/.echotrain.lock")));
}

}  // namespace
}  // namespace etr::test
