// Each call on a socket, and each that a connection needs, fails once while data is read over the
// network: the same bytes, because requests are repeated, or an error that names the address; and
// either within the time that the options promise.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "failing/system_calls.h"
#include "failing/workloads.h"
#include "support/http_server.h"

namespace etr::failing {
namespace {

constexpr int kTimeoutSeconds = 2;  // of a request
constexpr int kPauseSeconds = 1;    // more than before a first retry
constexpr int kSlackSeconds = 6;    // for a busy machine
static_assert(kTimeoutSeconds + kPauseSeconds + kSlackSeconds < kSlowLookupSeconds);

std::string lines(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

// data_server.py in a process of its own: HTTPS and S3 at the name kTestHost.
class DataServer {
 public:
  explicit DataServer(const std::string& folder) {
    int input[2], output[2];
    if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) {
      ADD_FAILURE() << "no pipes";
      return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string words[] = {ETR_PYTHON, ETR_DATA_SERVER, folder, kTestHost};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    if (posix_spawn(&process_, ETR_PYTHON, &actions, nullptr, arguments, environ) != 0)
      ADD_FAILURE() << "no data_server.py";
    posix_spawn_file_actions_destroy(&actions);
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    char digit = 0;
    while (::read(output[0], &digit, 1) == 1 && digit != '\n') port_ += digit;
    if (port_.empty()) ADD_FAILURE() << "data_server.py has not started: see above";
    ::close(output[0]);
  }
  ~DataServer() {
    ::close(input_);
    if (process_ != 0) ::waitpid(process_, nullptr, 0);
  }
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  bool has_started() const { return !port_.empty(); }
  std::string address() const { return std::string("https://") + kTestHost + ":" + port_; }

 private:
  pid_t process_ = 0;
  int input_ = -1;
  std::string port_;
};

std::string spec_of(const std::string& pattern, const std::string& retries) {
  return R"({"epochs": 1, "remote_part_bytes": 65536, "remote_timeout_s": )" +
         std::to_string(kTimeoutSeconds) + R"(, "remote_retries": )" + retries +
         R"(, "stages": [{"stage": "text_lines", "pattern": ")" + pattern +
         R"("}, {"stage": "batch", "size": 1000, "drop_remainder": false}]})";
}

// Reads lines at a pattern while calls fail: with a retry, and without. `names`: one of them is in
// each error.
void fail_reading(const std::string& pattern, const std::vector<std::string>& names, size_t runs) {
  for (const std::string retries : {"1", "0"}) {
    const std::string spec = spec_of(pattern, retries);
    double seconds = 0;
    const auto read = [&](std::string& results) {
      const auto began = std::chrono::steady_clock::now();
      Outcome outcome = read_epochs(spec, results, 1);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      return outcome;
    };
    const auto after = [&](const Outcome& outcome) {
      // An event is what threads of the pipeline wait for.
      bool named = outcome.status == ETR_OK || outcome.message.starts_with("cannot make an event");
      for (const std::string& name : names)
        named |= outcome.message.find(name) != std::string::npos;
      EXPECT_TRUE(named) << "the error names no address";
      EXPECT_LT(seconds, kTimeoutSeconds + kPauseSeconds + kSlackSeconds)
          << "longer than the options promise";
    };
    SystemCalls system(Calls::network);
    fail_everywhere(system, read,
                    {.statuses = {ETR_IO, ETR_OUT_OF_MEMORY}, .after = after, .runs = runs});
  }
}

TEST(FailingNetwork, IsAnErrorOrTriedAgain) {
  const test::HttpServer server({{"/lines.txt", lines(10000, 30000)}});
  fail_reading(server.address() + "/lines.txt", {server.address()}, 24);
}

class FailingSecureNetwork : public testing::Test {
 protected:
  static std::string write_files(const std::string& folder) {
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/lines.txt") << lines(10000, 30000);
    for (int i = 0; i < 3; ++i)
      std::ofstream(folder + "/part-" + std::to_string(i) + ".txt")
          << lines(10000 + i, 10009 + 8000 * i);
    return folder;
  }

  void SetUp() override {
    ASSERT_TRUE(server_.has_started());
    const std::string address = server_.address();
    ::setenv("SSL_CERT_FILE", (folder_ + "/tls/authority.pem").c_str(), 1);
    for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
      ::setenv(name, address.c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", "k", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    ::setenv("no_proxy", "*", 1);  // the machine's proxy does not know this name
  }

  const test::TempDir dir_;
  const std::string folder_ = write_files(dir_.path("served"));
  const DataServer server_{folder_};
};

TEST_F(FailingSecureNetwork, IsAnErrorOrTriedAgain) {
  fail_reading(server_.address() + "/lines.txt", {server_.address()}, 24);
}

TEST_F(FailingSecureNetwork, IsAnErrorOrTriedAgainOfAStore) {
  fail_reading("s3://bucket/part-*.txt", {server_.address(), "s3://bucket/part-"}, 12);
}

TEST_F(FailingSecureNetwork, ASlowNameServerIsNotWaitedForLongerThanTheTimeout) {
  const std::string spec = spec_of(server_.address() + "/lines.txt", "0");
  SystemCalls system(Calls::network);
  std::string results;
  // How often a read polls varies, and with it the number of the call that looks the name up.
  for (int attempt = 0; attempt < 10; ++attempt) {
    system.disarm();
    read_epochs(spec, results, 1);
    int64_t call = 1;
    while (call <= system.calls() && system.errors_of(call) != kLookupErrors) ++call;
    ASSERT_LE(call, system.calls()) << "no name was looked up";
    system.arm(call, kLookupErrors - 1);
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = read_epochs(spec, results, 1);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (system.failed_call() != "getaddrinfo() is slow") continue;
    EXPECT_EQ(outcome.status, ETR_IO) << outcome.message;
    EXPECT_LT(took.count(), kTimeoutSeconds + kSlackSeconds);
    return;
  }
  FAIL() << "the look-up was another call each time";
}

}  // namespace
}  // namespace etr::failing
