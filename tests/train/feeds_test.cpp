// How batches reach the device: as bytes that become floats there, or as views of samples on it.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/rng.h"
#include "support/error_text.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

// Images of [3, 5, 3]: their rows have 15 bytes, so a 32-bit word may hold parts of two rows.
pipeline::Item image_batch(int64_t samples, bool bytes) {
  pipeline::Item batch;
  Tensor pixels(DType::u8, {samples, 3, 5, 3}), floats(DType::f32, pixels.shape());
  Tensor scale(DType::f32, {3}), shift(DType::f32, {3});
  for (size_t c = 0; c < 3; ++c)
    scale.mutable_view<float>()[c] = 1.0f / (255 * (0.2f + 0.1f * static_cast<float>(c)));
  std::ranges::fill(shift.mutable_view<float>(), -1.7f);
  for (size_t i = 0; i < pixels.size_bytes(); ++i) {
    const auto v = static_cast<uint8_t>(i * 37 % 256);
    pixels.mutable_view<uint8_t>()[i] = v;
    floats.mutable_view<float>()[i] = static_cast<float>(v) * scale.view<float>()[i % 3] - 1.7f;
  }
  batch.set("image", bytes ? pixels : floats);
  if (bytes) batch.set("image_scale", scale);
  if (bytes) batch.set("image_shift", shift);
  batch.set("label", symbols(samples, 0, [](int64_t r, int64_t) { return static_cast<int>(r); }));
  return batch;
}

TEST(Learner, BytesBecomeFloatsOnTheDevice) {
  const char* model = R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "flatten"},
                                     {"layer": "dense", "units": 10}]})";
  const auto losses = [&](bool bytes, bool mixed) {
    Learner learner = make_learner(model, R"({"optimizer": "sgd"})");
    for (const int64_t samples : {6, 6, 5, 4})
      learner.step(image_batch(samples, bytes || (mixed && samples == 5)));
    std::vector<float> out;
    for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
    for (const bool as_bytes : {bytes, !bytes}) {  // predictions take both
      const Tensor y = learner.predict(image_batch(3, as_bytes));
      out.insert(out.end(), y.view<float>().begin(), y.view<float>().begin() + 30);
    }
    return out;
  };
  const std::vector<float> whole = losses(false, false);
  EXPECT_EQ(whole.size(), 64u);
  EXPECT_EQ(losses(true, false), whole);
  EXPECT_EQ(losses(false, true), whole) << "if floats came first, bytes become floats on the host";
  Learner learner = make_learner(model, R"({"optimizer": "sgd"})");
  learner.step(image_batch(6, true));
  EXPECT_THROW(learner.step(image_batch(6, false)), Error);
}

// Kernels for CPUs reach it by address, whatever the device can bind.
TEST(Reservoir, IsAsLargeAsATensorOfTheDeviceMayBe) {
  const pipeline::ImageView view(Tensor(DType::u8, {8, 8, 3}));
  const auto capacity = [&](const gpu::LoweredLimits& lowered) {
    gpu::DeviceOptions options = device_options();
    options.lowered.max_storage_bytes = lowered.max_storage_bytes;
    options.lowered.max_buffer_bytes = lowered.max_buffer_bytes;
    gpu::Kernels k(std::make_shared<gpu::Device>(options));
    return train::Reservoir(k, view, /*batch=*/4, /*samples=*/10'000).stats().capacity;
  };
  const uint64_t limit = uint64_t{1} << 20, fit = limit / (8 * 8 * 3);
  const bool cpu = device()->family() == gpu::KernelFamily::cpu;
  EXPECT_EQ(capacity({.max_storage_bytes = limit}), cpu ? 10'000 : fit);
  EXPECT_EQ(capacity({.max_buffer_bytes = limit}), fit);
}

// Samples that were evicted are uploaded again, and losses do not change.
TEST(Learner, ViewsOfMoreSamplesThanTheReservoirHoldsTrainAlike) {
  Rng rng(5);
  std::vector<std::shared_ptr<const Tensor>> images;
  for (int i = 0; i < 40; ++i) {
    Tensor image(DType::u8, {5, 7, 3});
    for (uint8_t& v : image.mutable_view<uint8_t>()) v = static_cast<uint8_t>(rng.below(256));
    images.push_back(std::make_shared<const Tensor>(std::move(image)));
  }
  const char* model = R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]})";
  Learner whole = make_learner(model, R"({"optimizer": "sgd"})");
  Learner viewed = make_learner(model, R"({"optimizer": "sgd"})");
  for (int step = 0; step < 30; ++step) {
    pipeline::Item a, b;
    Tensor pixels(DType::u8, {4, 5, 7, 3});
    auto views = std::make_shared<std::vector<pipeline::ImageView>>();
    for (size_t i = 0; i < 4; ++i) {
      const auto& image = images[rng.below(40)];
      pipeline::ImageView view(*image);
      view.image = image;
      views->push_back(view);
      std::copy_n(image->view<uint8_t>().data(), 105,
                  pixels.mutable_view<uint8_t>().data() + 105 * i);
    }
    for (pipeline::Item* item : {&a, &b}) {
      for (const char* name : {"image_scale", "image_shift"}) {
        Tensor value(DType::f32, {1});
        value.mutable_view<float>()[0] = name[6] == 's' && name[7] == 'c' ? 1.0f / 255 : -0.5f;
        item->set(name, value);
      }
      item->set("label",
                symbols(4, 0, [&](int64_t r, int64_t) { return static_cast<int>(r) + step % 6; }));
    }
    a.set("image", pixels);
    b.views = views;
    whole.step(a);
    viewed.step(b);
  }
  EXPECT_EQ(viewed.reservoir().capacity, 4u * 3);
  EXPECT_GT(viewed.reservoir().uploaded, 40u);
  EXPECT_GT(viewed.reservoir().reused, 10u);
  const auto x = whole.take_metrics(true), y = viewed.take_metrics(true);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i].loss, y[i].loss) << i;
}

// A batch of one image, as it is or as a view.
pipeline::Item batch_of_image(const Tensor& image) {
  pipeline::Item batch;
  const Shape& of = image.shape();
  Tensor pixels(DType::u8, {1, of[0], of[1], of[2]});
  Tensor scale(DType::f32, {1}), shift(DType::f32, {1});
  std::ranges::copy(image.view<uint8_t>(), pixels.mutable_view<uint8_t>().begin());
  scale.mutable_view<float>()[0] = 1.0f / 255;
  shift.mutable_view<float>()[0] = -0.5f;
  batch.set("image", pixels);
  batch.set("image_scale", scale);
  batch.set("image_shift", shift);
  batch.set("label", symbols(1, 0, [](int64_t, int64_t) { return 3; }));
  return batch;
}

pipeline::Item batch_of_view(const pipeline::ImageView& view) {
  pipeline::Item batch = batch_of_image(*view.image);
  batch.remove("image");
  batch.views = std::make_shared<std::vector<pipeline::ImageView>>(1, view);
  return batch;
}

constexpr const char* kMeanOfPixels =
    R"({"layers": [{"layer": "global_avg_pool"}, {"layer": "dense", "units": 10}]})";

// Of a whole image to a pixel: as many taps as the iterations of Mesa 22 suffice for, and more.
TEST(Reservoir, RefusesToScaleWhereTheDriverWouldEndLoops) {
  for (const uint32_t side : {126, 127}) {
    Tensor image(DType::u8, {side, side, 3}), pixel(DType::u8, {1, 1, 3});
    for (size_t i = 0; i < image.size_bytes(); ++i)
      image.mutable_view<uint8_t>()[i] = i < side / 2 * side * 3 ? 0 : 200;
    std::ranges::fill(pixel.mutable_view<uint8_t>(), static_cast<uint8_t>(side == 126 ? 100 : 101));
    pipeline::Resampling to_one;
    to_one.rows = {side, {0}, std::vector<float>(side, 1 / static_cast<float>(side))};
    to_one.columns = to_one.rows;
    to_one.most_row_taps = to_one.most_column_taps = side;
    pipeline::ImageView view(image);
    view.resample(std::make_shared<const pipeline::Resampling>(to_one));
    Learner whole = make_learner(kMeanOfPixels, R"({"optimizer": "sgd"})");
    Learner viewed = make_learner(kMeanOfPixels, R"({"optimizer": "sgd"})");
    const std::string error = error_text([&] { viewed.step(batch_of_view(view)); });
    if (side == 127 && device()->info().max_iterations != 0) {
      for (const char* part : {"device echo", "65540 iterations", "Mesa 25", "the echo's 'device'",
                               "127 x 127 pixels to 1 x 1"})
        EXPECT_NE(error.find(part), std::string::npos) << error;
      continue;
    }
    ASSERT_EQ(error, "");
    whole.step(batch_of_image(pixel));
    EXPECT_EQ(viewed.take_metrics(true)[0].loss, whole.take_metrics(true)[0].loss) << side;
  }
}

// Each lane takes columns of the view, one after another. A mean of more pixels takes more.
TEST(Reservoir, RefusesContrastWhereTheDriverWouldEndLoops) {
  gpu::DeviceOptions options = device_options();
  options.lowered.max_iterations = 100;
  for (const bool jitters : {false, true}) {
    const auto own = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
    Learner learner(own, {parse_json(kMeanOfPixels, "model"), Json{{"optimizer", "sgd"}},
                          Json{{"learning_rate", 0.01}}, 3, 100});
    Tensor image(DType::u8, {99, 7, 1});
    std::ranges::fill(image.mutable_view<uint8_t>(), uint8_t{7});
    pipeline::ImageView view(image);
    if (jitters)
      view.change_colours({});
    else
      view.adjust(1, 0);
    const std::string error = error_text([&] { learner.step(batch_of_view(view)); });
    for (const char* part :
         {"device echo", "iterations", "Mesa 25", "the echo's 'device'", "99 x 7 pixels"})
      EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

// A lane goes down a column of the view; colours take two loops over the channels for each pixel.
TEST(Reservoir, RefusesViewsWhereTheDriverWouldEndLoops) {
  gpu::DeviceOptions options = device_options();
  options.lowered.max_iterations = 100;
  const struct {
    uint32_t rows, channels;
    bool fits;
  } cases[] = {{100, 1, true}, {101, 1, false}, {11, 3, true}, {12, 3, false}};
  for (const auto& of : cases) {
    const auto own = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
    Learner learner(own, {parse_json(kMeanOfPixels, "model"), Json{{"optimizer", "sgd"}},
                          Json{{"learning_rate", 0.01}}, 3, 100});
    Tensor image(DType::u8, {of.rows, 6, of.channels});
    std::ranges::fill(image.mutable_view<uint8_t>(), uint8_t{7});
    pipeline::ImageView view(image);
    if (of.channels == 3) view.change_colours({});
    pipeline::Item batch = batch_of_view(view);
    for (const char* field : {"image_scale", "image_shift"}) {
      Tensor values(DType::f32, {of.channels});
      std::ranges::fill(values.mutable_view<float>(), 0.5f);
      batch.set(field, values);
    }
    const std::string error = error_text([&] { learner.step(batch); });
    EXPECT_EQ(error.empty(), of.fits) << of.rows << error;
    const std::string size = cat(of.rows, " x 6 pixels");
    for (const char* part :
         {"device echo", "iterations", "Mesa 25", "the echo's 'device'", size.c_str()})
      EXPECT_EQ(error.find(part) == std::string::npos, of.fits) << error;
  }
}

}  // namespace
}  // namespace etr::test
