// What tests of the C API share: images on disk, a small model with its optimizer.
#pragma once

#include <gtest/gtest.h>
#include <png.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "echotrain/echotrain.h"
#include "support/temp_dir.h"

#define ASSERT_OK(call) ASSERT_EQ(call, ETR_OK) << etr_last_error()

// Memory of a program's own allocator.
inline void* take_aligned(uint64_t bytes, uint64_t alignment) {
#ifdef _WIN32
  return _aligned_malloc(bytes, alignment);
#else
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#endif
}
inline void free_aligned(void* memory) {
#ifdef _WIN32
  _aligned_free(memory);
#else
  std::free(memory);
#endif
}

// A folder of class folders with small images.
class Images {
 public:
  Images() {
    for (int i = 0; i < 64; ++i) {
      const std::filesystem::path folder = path(std::to_string(i % 2));
      std::filesystem::create_directories(folder);
      std::vector<uint8_t> pixels(64, static_cast<uint8_t>(i % 2 ? 200 : 40));
      for (size_t p = 0; p < 64; ++p)
        pixels[p] = static_cast<uint8_t>(pixels[p] + (p * 13 + static_cast<size_t>(i) * 7) % 40);
      png_image image{};
      image.version = PNG_IMAGE_VERSION;
      image.width = image.height = 8;
      image.format = PNG_FORMAT_GRAY;
      png_image_write_to_file(&image, (folder / (std::to_string(i) + ".png")).string().c_str(), 0,
                              pixels.data(), 0, nullptr);
    }
  }
  std::string path(const std::string& name = "") const { return dir_.path(name); }

  std::string spec(const std::string& extra = "") const {
    return R"({"seed": 1, "stages": [{"stage": "folder", "root": ")" + path() +
           R"("}, {"stage": "label"}, {"stage": "decode"},
        {"stage": "echo", "factor": 2}, )" +
           extra + R"({"stage": "batch", "size": 16}, {"stage": "normalize"}]})";
  }

 private:
  etr::test::TempDir dir_;
};

struct Net {
  Net() {
    etr_model_create(&model);
    add("flatten");
    etr_options* dense = nullptr;
    etr_options_create(&dense);
    etr_options_set_integer(dense, "units", 2);
    EXPECT_EQ(etr_model_add(model, "dense", dense), ETR_OK) << etr_last_error();
    etr_options_destroy(dense);
    etr_options *sgd = nullptr, *schedule = nullptr;
    etr_options_create(&sgd);
    etr_options_set_number(sgd, "momentum", 0.9);
    etr_options_create(&schedule);
    etr_options_set_number(schedule, "learning_rate", 0.02);
    EXPECT_EQ(etr_optimizer_create("sgd", sgd, schedule, &optimizer), ETR_OK) << etr_last_error();
    etr_options_destroy(sgd);
    etr_options_destroy(schedule);
  }
  ~Net() {
    etr_model_destroy(model);
    etr_optimizer_destroy(optimizer);
  }
  void add(const char* layer) {
    EXPECT_EQ(etr_model_add(model, layer, nullptr), ETR_OK) << etr_last_error();
  }
  etr_model* model = nullptr;
  etr_optimizer* optimizer = nullptr;
};
