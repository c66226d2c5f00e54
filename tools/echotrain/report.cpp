// echotrain report and devices.
#include <cstdio>
#include <filesystem>

#include "arguments.h"
#include "cli.h"

namespace cli {

namespace {

namespace fs = std::filesystem;

// Returns the default name of a run: that of its folder.
std::string name_of(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (!fs::is_directory(path, error)) folder = folder.parent_path();
  if (!folder.has_filename()) folder = folder.parent_path();  // the path ended with a slash
  return folder.has_filename() ? folder.filename().string() : path;
}

}  // namespace

int command_report(const Arguments& arguments) {
  std::vector<std::string> names, paths;
  for (const std::string& word : arguments.operands()) {
    std::error_code unknown;
    const size_t equals = fs::exists(word, unknown) ? std::string::npos : word.find('=');
    paths.push_back(equals == std::string::npos ? word : word.substr(equals + 1));
    names.push_back(equals == std::string::npos ? name_of(word) : word.substr(0, equals));
  }
  std::vector<const char*> name_pointers, path_pointers;
  for (size_t i = 0; i < names.size(); ++i) {
    name_pointers.push_back(names[i].c_str());
    path_pointers.push_back(paths[i].c_str());
  }
  const std::string out = arguments.value("out", "report.html");
  check(etr_report_write(arguments.value("title", "EchoTrain report").c_str(), name_pointers.data(),
                         path_pointers.data(), static_cast<int32_t>(names.size()),
                         arguments.number("target", 0), out.c_str(), nullptr));
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

int command_devices(const Arguments&) {
  int32_t count = 0;
  check(etr_prefer_wide_cpu_vectors());
  check(etr_device_count(&count));
  if (count == 0)
    throw Failure("there is no Vulkan device; install mesa-vulkan-drivers for lavapipe");
  static const char* const kKinds[] = {"discrete GPU", "integrated GPU", "virtual GPU", "CPU",
                                       "other"};
  for (int32_t i = 0; i < count; ++i) {
    etr_device_info info{};
    info.struct_size = sizeof info;
    check(etr_device_get(i, &info));
    std::printf("%d: %s\n   %s, Vulkan %u.%u, %.1f GiB, subgroups of %u, driver %s\n", info.index,
                info.name, kKinds[info.kind], info.api_major, info.api_minor,
                static_cast<double>(info.memory_bytes) / (1 << 30), info.subgroup_size,
                info.driver);
  }
  return 0;
}

}  // namespace cli
