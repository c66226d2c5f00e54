// Folders of images with other things in them: what is read, and what the log and the errors say.
#include <sys/stat.h>

#include <mutex>

#include "core/log.h"
#include "io/tar_writer.h"
#include "sources/alone.h"
#include "support/child.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

// The lines that are logged while it lives.
class Log {
 public:
  Log() {
    set_log_hook([this](LogLevel, const char* line) {
      std::scoped_lock lock(mutex_);
      lines_ += cat(line, '\n');
    });
  }
  ~Log() { set_log_hook(nullptr); }
  std::string lines() const {
    std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::string lines_;
};

Json images_spec(const TempDir& dir, const Json& more = Json::object()) {
  Json out{
      {"epochs", 1},
      {"stages",
       {{{"stage", "folder"}, {"root", dir.path()}, {"shuffle", false}}, {{"stage", "decode"}}}}};
  out.update(more);
  return out;
}

TEST(ImageFolder, TakesImagesInCapitalsAndPassesOverTheRest) {
  TempDir dir;
  const std::string png = make_png(4, 4, 1, 1);
  for (const char* name : {"a/1.png", "a/2.PNG", "b/3.Png", "b/notes.png.txt", "b/.4.png",
                           "b/deep/5.png", "b/README", "stray.png", "none/notes.txt"})
    put(dir.path(name), png);
  std::filesystem::create_directory_symlink(dir.path("loop"), dir.path("loop"));
  std::filesystem::create_symlink("6.png", dir.path("a/6.png"));
  std::filesystem::create_directory_symlink("..", dir.path("a/up"));
  std::filesystem::create_symlink("1.png", dir.path("a/7.png"));
  ASSERT_EQ(mkfifo(dir.path("a/8.png").c_str(), 0600), 0);
  const Log log;
  const auto items = read_all(images_spec(dir));
  std::vector<std::string> keys;
  for (const Item& item : items) {
    keys.push_back(item.origin->key);
    EXPECT_NE(item.find("image"), nullptr);
    EXPECT_EQ(item.fields.size(), 2u) << "the field with the file is gone";
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"a/1.png", "a/2.PNG", "a/7.png", "b/3.Png"}));
  EXPECT_EQ(text(items[3], "cls"), "1");
  EXPECT_HAS(log.lines(), "'a/6.png' (a link that leads nowhere)");
  EXPECT_HAS(log.lines(), "'a/8.png' (not a regular file)");
  EXPECT_HAS(log.lines(), "'a/up' (a folder within a class folder), ...");
  EXPECT_HAS(log.lines(), "holds 10 entries beside its samples");
  EXPECT_EQ(log.lines().find(".4.png"), std::string::npos);
}

TEST(ImageFolder, HiddenEntriesAreNotLogged) {
  TempDir dir;
  for (const char* name : {"a/1.png", "a/.DS_Store", ".DS_Store", ".git/config", ".git/1.png"})
    put(dir.path(name), make_png(4, 4, 1, 1));
  std::filesystem::create_directories(dir.path("a/.thumbnails"));
  const Log log;
  EXPECT_EQ(read_all(images_spec(dir)).size(), 1u);
  EXPECT_EQ(log.lines().find("beside its samples"), std::string::npos) << log.lines();
}

// They move the class numbers of the folders behind them.
TEST(ImageFolder, APositionBelongsToTheClassFoldersAlsoTheEmptyOnes) {
  TempDir dir;
  for (const char* name : {"b/1.png", "b/2.png", "c/1.png"})
    put(dir.path(name), make_png(4, 4, 1, 1));
  const Json spec = images_spec(dir);
  Pipeline first(spec);
  Item item;
  first.next(item);
  const Json state = first.save();
  const auto said = [&](const Json& position) {
    return error_text([&] { Pipeline(spec).restore(position); });
  };
  EXPECT_EQ(said(state), "");
  std::filesystem::create_directory(dir.path("a"));
  EXPECT_HAS(said(state), "it had 2 class folders and has 3");
  Json earlier = state;  // of a version that did not note them
  earlier["data"].erase("classes");
  EXPECT_EQ(said(earlier), "");
  std::filesystem::remove(dir.path("a"));
  std::filesystem::create_directory(dir.path("d"));
  const Json with_d = Pipeline(spec).save();
  std::filesystem::rename(dir.path("d"), dir.path("a"));
  EXPECT_HAS(said(with_d), "its class folders have other names");
}

TEST(ImageFolder, OfOtherExtensionsIsReadWhereItIsTold) {
  TempDir dir;
  put(dir.path("a/1.TIFF"), "x");
  put(dir.path("a/2.txt"), "y");
  const auto with = [&](const char* extensions) {
    return spec_of("folder", {{"root", dir.path()}, {"extensions", extensions}, {"shuffle", false}},
                   {{"epochs", 1}});
  };
  EXPECT_HAS(failure(with("png,jpg")), "'a/1.TIFF' is not one of the extensions that are read");
  EXPECT_EQ(read_all(with("")).size(), 2u);
  for (const char* one : {"tiff", ".TIFF", " tiff , bmp"}) {
    const auto items = read_all(with(one));
    ASSERT_EQ(items.size(), 1u) << one;
    EXPECT_EQ(text(items[0], "tiff"), "x") << "names of fields are lower-case";
  }
  EXPECT_HAS(failure(with("tiff,,bmp")), "'extensions' is 'tiff,,bmp'");
}

TEST(ImageFolder, ABrokenImageIsABadRecordWhoseErrorSaysTheFix) {
  const std::string png = make_png(40, 40, 3, 1);
  for (const std::string& bytes : {std::string(), png.substr(0, 7), png.substr(0, png.size() / 2),
                                   std::string("no image"), std::string(64, '\0')}) {
    TempDir dir;
    put(dir.path("a/1.jpg"), bytes);
    put(dir.path("a/2.png"), png);
    const std::string error = failure(images_spec(dir));
    EXPECT_HAS(error, "key 'a/1.jpg'");
    EXPECT_HAS(error, "set on_error to skip or quarantine");
    Pipeline p(images_spec(dir, {{"on_error", "skip"}}));
    EXPECT_EQ(read_all(p).size(), 1u);
    EXPECT_EQ(p.stats()["bad_records"], 1);
  }
  TempDir dir;  // which no policy mends
  EXPECT_EQ(failure(spec_of("text_lines", {{"pattern", dir.path("none")}})).find("on_error"),
            std::string::npos);
}

TEST(ImageFolder, ThatMayNotBeReadIsNamed) {
  TempDir dir;
  put(dir.path("a/1.png"), make_png(4, 4, 1, 1));
  put(dir.path("b/1.png"), make_png(4, 4, 1, 1));
  chmod(dir.path().c_str(), 0755);  // for the child, whose user is another
  chmod(dir.path("b").c_str(), 0);
  const int status = in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;  // who may read everything
    for (const auto& [stage, options] :
         {std::pair<const char*, Json>{"folder", {{"root", dir.path()}}},
          {"files", {{"pattern", dir.path("*/*.png")}}}}) {
      const std::string error = failure_alone(stage, options);
      if (error.find("cannot list '" + dir.path("b") + "': Permission denied") != error.npos)
        continue;
      std::fprintf(stderr, "%s\n", error.c_str());
      return 2;
    }
    return 0;
  });
  chmod(dir.path("b").c_str(), 0700);
  EXPECT_EQ(status, 0);
}

TEST(Globs, PassOverFoldersAndLinksThatLeadNowhere) {
  TempDir dir;
  put(dir.path("1.txt"), "x");
  put(dir.path("sub/2.txt"), "y");
  std::filesystem::create_directory_symlink(dir.path("loop"), dir.path("loop"));
  const auto with = [&](const char* pattern) {
    return failure(spec_of("files", {{"pattern", dir.path(pattern)}}, {{"epochs", 1}}));
  };
  EXPECT_EQ(with("[1s]*"), "no error");
  EXPECT_EQ(with("*/*.txt"), "no error");
  EXPECT_HAS(with("s*"), "only folders match '" + dir.path("s*"));
  EXPECT_EQ(with("s*").find("moved"), std::string::npos) << "something is there: " << with("s*");
  EXPECT_HAS(with("loop/*"), "no file matches");
  EXPECT_HAS(with("sub"), dir.path("sub"));
}

TEST(Decode, FindsItsFieldInCapitals) {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 0);
  const std::string png = make_png(4, 4, 1, 1);
  for (const char* name : {"1.PNG", "2.png"}) writer.add(name, std::as_bytes(std::span(png)));
  writer.finish();
  for (const char* field : {"", "png", "Png"}) {
    const Json spec{{"epochs", 1},
                    {"stages",
                     {{{"stage", "webdataset"}, {"pattern", dir.path("a.tar")}},
                      {{"stage", "decode"}, {"field", field}}}}};
    EXPECT_EQ(read_all(spec).size(), 2u) << field;
  }
}

}  // namespace
}  // namespace etr::test
