// Ranks on this machine: a process each, one display for all, and one end.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "console.h"
#include "job.h"

namespace cli {
namespace {

constexpr double kGrace = 15;  // seconds for the other ranks, when one has failed

// Where ranks find each other.
class Meeting {
 public:
  Meeting() {
    std::string pattern = (std::filesystem::temp_directory_path() / "echotrain-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw Failure("cannot make a folder in which ranks meet: " + pattern + ": " +
                    std::strerror(errno));
    folder = pattern;
  }
  ~Meeting() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::string folder;
};

struct Rank {
  std::string name;  // "rank 1", "shard 0"
  bool serves = false;
  pid_t process = -1;  // -1: it has ended
  int messages = -1;   // what it writes on standard error; the first one's are not read here
  std::string unfinished;
  int status = 0;
};

// What is to be started.
struct Cast {
  int ranks = 0, servers = 0;
  std::vector<std::string> settings;  // that the job needs for it
};

Cast cast_of(const Arguments& arguments, const Json& job) {
  Cast cast;
  cast.ranks = static_cast<int>(arguments.integer("ranks").value_or(0));
  const Json section = job.value("parallel", Json::object());
  const std::string algorithm = section.value("algorithm", "synchronous");
  const bool has_servers = algorithm == "downpour" || algorithm == "easgd";
  const auto wanted = arguments.integer("servers");
  if (!job.contains("parallel")) cast.settings.push_back("parallel={}");
  if (wanted && !has_servers) {
    if (section.contains("algorithm") || *wanted < 1)
      throw UsageError(
          "--servers is for jobs whose parallel.algorithm is downpour or easgd, and at "
          "least 1; this job has '" +
          algorithm + "'");
    cast.settings.push_back("parallel.algorithm=downpour");
  }
  if (wanted) cast.settings.push_back("parallel.servers=" + std::to_string(*wanted));
  if (wanted || has_servers)
    cast.servers = static_cast<int>(wanted.value_or(section.value("servers", int64_t{1})));
  return cast;
}

void add_settings(std::vector<std::string>& out, const Arguments& arguments, const Cast& cast) {
  for (const std::string& value : arguments.values("set")) out.insert(out.end(), {"--set", value});
  for (const std::string& value : cast.settings) out.insert(out.end(), {"--set", value});
}

std::vector<std::string> words_of_server(const Arguments& arguments, const Cast& cast, int shard) {
  std::vector<std::string> out{"echotrain", "serve", arguments.operand(0), "--shard",
                               std::to_string(shard)};
  add_settings(out, arguments, cast);
  return out;
}

std::vector<std::string> words_of(const Arguments& arguments, const Cast& cast, int rank) {
  std::vector<std::string> out{"echotrain", "train", arguments.operand(0)};
  add_settings(out, arguments, cast);
  for (const char* option : {"kernels", "tuning"})
    for (const std::string& value : arguments.values(option)) {
      out.push_back(std::string("--") + option);
      out.push_back(value);
    }
  const auto devices = arguments.values("device");
  if (!devices.empty())
    out.insert(out.end(), {"--device", devices[static_cast<size_t>(rank) % devices.size()]});
  for (const char* flag : {"resume", "overwrite", "validation"})
    if (arguments.flag(flag)) out.push_back(std::string("--") + flag);
  return out;
}

void set_default(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); }

// In the child: never returns.
[[noreturn]] void become(const std::vector<std::string>& words, bool serves, int rank, int size,
                         const std::string& folder, int messages, pid_t parent) {
  // A terminal's Ctrl-C is for the workers, which need their servers to end in order.
  if (serves) ::setpgid(0, 0);
#ifdef __linux__  // elsewhere ranks learn by their end of the pipe, when they next write
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(1);
  ::setenv("ECHOTRAIN_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("ECHOTRAIN_SIZE", std::to_string(size).c_str(), 1);
  ::setenv("ECHOTRAIN_RENDEZVOUS", ("file:" + folder).c_str(), 1);
  // Ranks share the cores: lavapipe would take all of them for each.
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  set_default("LP_NUM_THREADS", std::to_string(std::max(1u, cores / static_cast<unsigned>(size))));
  if (messages >= 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(messages, STDERR_FILENO);
  }
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  ::execvp(pointers[0], pointers.data());  // where there is no /proc
  ::_exit(127);
}

Rank start(const std::vector<std::string>& words, bool serves, int rank, int size,
           const std::string& folder) {
  int ends[2] = {-1, -1};
  if ((rank > 0 || serves) && ::pipe(ends) != 0)
    throw Failure(std::string("cannot make a pipe: ") + std::strerror(errno));
  for (const int end : ends)
    if (end >= 0) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  const pid_t parent = ::getpid(), process = ::fork();
  if (process < 0) throw Failure(std::string("cannot start a process: ") + std::strerror(errno));
  if (process == 0) become(words, serves, rank, size, folder, ends[1], parent);
  if (ends[1] >= 0) ::close(ends[1]);
  return {(serves ? "shard " : "rank ") + std::to_string(rank), serves, process, ends[0], "", 0};
}

// Whole lines, with the rank's number in front.
void pass_on(Rank& rank) {
  char buffer[4096];
  const ssize_t count = ::read(rank.messages, buffer, sizeof buffer);
  if (count > 0) {
    rank.unfinished.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    ::close(std::exchange(rank.messages, -1));
    if (!rank.unfinished.empty()) rank.unfinished += '\n';
  }
  for (size_t end; (end = rank.unfinished.find('\n')) != std::string::npos;) {
    std::fprintf(stderr, "%s: %s\n", rank.name.c_str(), rank.unfinished.substr(0, end).c_str());
    rank.unfinished.erase(0, end + 1);
  }
}

void signal_ranks(const std::vector<Rank>& ranks, int number, bool servers_too) {
  for (const Rank& rank : ranks)
    if (rank.process > 0 && (servers_too || !rank.serves)) ::kill(rank.process, number);
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// Until all have ended; the status of the first that failed. When one has, the others, who learn it from the group, have some time
// to end in order. Workers of a parameter server go on without one that has failed: there the first one's status counts, and that of
// a server. Servers end when the last worker has; where that one was lost they are told to.
int attend(std::vector<Rank>& ranks) {
  int failed = 0, asked = 0, dismissed = 0;
  double due = 0;
  const bool has_servers = ranks.back().serves;
  const auto running = [](const Rank& rank) { return rank.process > 0 || rank.messages >= 0; };
  const auto any_worker = [&](auto&& is) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](const Rank& rank) { return !rank.serves && is(rank); });
  };
  while (std::any_of(ranks.begin(), ranks.end(), running)) {
    std::vector<pollfd> open;
    for (const Rank& rank : ranks) open.push_back({rank.messages, POLLIN, 0});
    ::poll(open.data(), open.size(), 100);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (open[i].revents) pass_on(ranks[i]);
      int status = 0;
      if (ranks[i].process > 0 && ::waitpid(ranks[i].process, &status, WNOHANG) > 0) {
        ranks[i].process = -1;
        ranks[i].status = dismissed ? 0 : status_of(status);
        if (!failed && ranks[i].status && has_servers == ranks[i].serves) {
          failed = ranks[i].status;
          due = now_seconds() + kGrace;
        }
      }
    }
    // Ctrl-C reaches all of a terminal's processes by itself; asking twice would end them at once.
    if (interrupted() == SIGTERM && !std::exchange(asked, 1)) signal_ranks(ranks, SIGTERM, false);
    if (has_servers && !dismissed && !any_worker([](const Rank& r) { return r.process > 0; })) {
      dismissed = 1;
      due = now_seconds() + kGrace;
      if (any_worker([](const Rank& r) { return r.status != 0; }))
        signal_ranks(ranks, SIGTERM, true);
    }
    if ((failed || dismissed) && now_seconds() > due) {
      signal_ranks(ranks, SIGKILL, true);
      due = now_seconds() + kGrace;
    }
  }
  return failed ? failed : ranks.front().status;
}

}  // namespace

int command_launch(const Arguments& arguments) {
  const int64_t size = arguments.integer("ranks").value_or(0);
  if (size < 1 || size > 1024)
    throw UsageError("launch needs the number of ranks, from 1 to 1024: echotrain launch -n 2 " +
                     arguments.operand(0));
  Job job;
  load_job(arguments, job);  // a mistake in it is told once
  const Cast cast = cast_of(arguments, json_of(job));
  const Meeting meeting;
  const InterruptGuard guard;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < cast.ranks; ++rank)
    ranks.push_back(
        start(words_of(arguments, cast, rank), false, rank, cast.ranks, meeting.folder));
  for (int shard = 0; shard < cast.servers; ++shard)
    ranks.push_back(
        start(words_of_server(arguments, cast, shard), true, shard, cast.servers, meeting.folder));
  const int status = attend(ranks);
  for (const Rank& rank : ranks)
    if (rank.status > 128 && rank.status != 128 + interrupted())
      std::fprintf(stderr, "echotrain: %s was ended by signal %d\n", rank.name.c_str(),
                   rank.status - 128);
  return status;
}

}  // namespace cli
