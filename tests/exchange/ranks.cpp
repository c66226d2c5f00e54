#include "exchange/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "support/eventually.h"

namespace etr::test {

namespace {

std::string path_of(const std::string& folder, int rank, const std::string& what) {
  return cat(folder, "/", what, ".", rank);
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "no " + path;
}

std::string run(const Ranks::Body& body, const exchange::World& world) {
  try {
    return body(world);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Ranks::Ranks(int size, const Body& body, exchange::World world) {
  world.size = size;
  world.engines = ETR_ENGINES;
  if (world.rendezvous.empty()) world.rendezvous = "file:" + folder_.path("meet");
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      world.rank = rank;
      setenv("ECHOTRAIN_TEST_FOLDER", folder_.path().c_str(), 1);
      const std::string outcome = run(body, world);
      std::ofstream(path_of(folder_.path(), rank, "outcome")) << outcome;
      _exit(0);
    }
    processes_.push_back(child);
  }
}

Ranks::~Ranks() {
  for (const pid_t process : processes_) {
    if (process == 0) continue;
    ::kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

std::string Ranks::outcome(int rank) {
  pid_t& process = processes_[static_cast<size_t>(rank)];
  int status = 0;
  waitpid(process, &status, 0);
  process = 0;
  if (WIFSIGNALED(status)) return cat("ended by signal ", WTERMSIG(status));
  return contents(path_of(folder_.path(), rank, "outcome"));
}

std::string Ranks::said(int rank, const std::string& word) const {
  const std::string path = path_of(folder_.path(), rank, word);
  eventually([&] { return std::filesystem::exists(path); });
  return contents(path);
}

void say(const exchange::World& world, const std::string& word, const std::string& text) {
  const std::string path = path_of(std::getenv("ECHOTRAIN_TEST_FOLDER"), world.rank, word);
  std::ofstream(path + "~") << text;
  std::filesystem::rename(path + "~", path);
}

}  // namespace etr::test
