#include "io/tar_writer.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/zstd.h"
#include "io/new_file.h"

namespace etr::io {

namespace {

constexpr size_t kNameBytes = 100;  // length of ustar's name field

// "LENGTH KEY=VALUE\n", where LENGTH counts itself.
std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size();
  for (size_t with = 0; with != length;) {
    with = length;
    length = rest.size() + std::to_string(with).size();
  }
  return std::to_string(length) + rest;
}

}  // namespace

struct TarWriter::State {
  NewFile file;
  ZstdCompressor zstd{nullptr, ZSTD_freeCCtx};
  std::vector<char> out = std::vector<char>(1 << 16);

  explicit State(const std::string& path) : file(path, ".tmp") {}

  void write(std::span<const std::byte> bytes, ZSTD_EndDirective directive = ZSTD_e_continue) {
    if (!zstd) return file.write(bytes);
    ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
    size_t left = 0;
    do {
      ZSTD_outBuffer output{out.data(), out.size(), 0};
      left = zstd_result(ZSTD_compressStream2(zstd.get(), &output, &input, directive));
      if (ZSTD_isError(left)) fail(Code::internal, "zstd: ", ZSTD_getErrorName(left));
      file.write(std::as_bytes(std::span(out.data(), output.pos)));
    } while (input.pos < input.size || (directive == ZSTD_e_end && left != 0));
  }
};

TarWriter::TarWriter(const std::string& path, int level) : state_(std::make_unique<State>(path)) {
  if (path.ends_with(".zst")) state_->zstd = zstd_compressor(level);
}

TarWriter::~TarWriter() = default;

void TarWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  if (name.empty() || name.find('\n') != std::string::npos || name.find('\0') != std::string::npos)
    fail(Code::invalid_argument, "'", name, "' cannot be the name of a tar member");
  if (name.size() > kNameBytes) {
    const std::string record = pax_record("path", name);
    add_member("pax", 'x', std::as_bytes(std::span(record)));
  }
  add_member(name.substr(0, kNameBytes), '0', bytes);
}

void TarWriter::add_member(const std::string& name, char type, std::span<const std::byte> bytes) {
  std::array<char, 512> header{};
  std::memcpy(header.data(), name.data(), name.size());
  std::snprintf(header.data() + 100, 8, "%07o", 0644u);
  std::snprintf(header.data() + 108, 8, "%07o", 0u);
  std::snprintf(header.data() + 116, 8, "%07o", 0u);
  std::snprintf(header.data() + 124, 12, "%011llo", static_cast<unsigned long long>(bytes.size()));
  std::snprintf(header.data() + 136, 12, "%011o", 0u);
  std::memset(header.data() + 148, ' ', 8);
  header[156] = type;
  std::memcpy(header.data() + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(header.data() + 148, 8, "%06o", sum);
  state_->write(std::as_bytes(std::span(header)));
  state_->write(bytes);
  static constexpr std::byte kZeros[512] = {};
  state_->write({kZeros, (512 - bytes.size() % 512) % 512});
}

void TarWriter::finish() {
  static constexpr std::byte kEnd[1024] = {};
  state_->write(kEnd, ZSTD_e_end);
  state_->file.keep();
}

}  // namespace etr::io
