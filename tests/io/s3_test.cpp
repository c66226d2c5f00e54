// Where access keys and settings of object stores come from.
#include "io/s3.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>

#include "core/error.h"
#include "support/error_text.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

// Sets the variables that settings come from, and takes them back.
class S3SettingsTest : public testing::Test {
 protected:
  S3SettingsTest() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value ? value : "", value != nullptr);
      ::unsetenv(name);
    }
    set("AWS_SHARED_CREDENTIALS_FILE", dir_.path("credentials"));
    set("AWS_CONFIG_FILE", dir_.path("config"));
  }
  ~S3SettingsTest() override {
    for (size_t i = 0; i < before_.size(); ++i)
      before_[i].second ? ::setenv(kNames[i], before_[i].first.c_str(), 1) : ::unsetenv(kNames[i]);
  }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  void write(const char* name, const std::string& text) { std::ofstream(dir_.path(name)) << text; }

  TempDir dir_;

 private:
  static constexpr const char* kNames[] = {
      "AWS_ACCESS_KEY_ID",           "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
      "AWS_DEFAULT_REGION",          "AWS_ENDPOINT_URL_S3",   "AWS_ENDPOINT_URL",  "AWS_PROFILE",
      "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"};
  std::vector<std::pair<std::string, bool>> before_;
};

TEST_F(S3SettingsTest, ComeFromTheProfile) {
  write("credentials",
        "[default]\naws_access_key_id = one\n\n[ other ]\r\n# aws_access_key_id = no\r\n"
        "aws_access_key_id=two\r\naws_secret_access_key = a=b\r\n");
  write("config", "[profile other]\nregion = eu-west-1\nendpoint_url = http://store:9000/");
  EXPECT_EQ(io::S3Settings::find().access_key, "one");
  EXPECT_EQ(io::S3Settings::find().region, "us-east-1");
  set("AWS_PROFILE", "other");
  const auto found = io::S3Settings::find();
  EXPECT_EQ(found.access_key, "two");
  EXPECT_EQ(found.secret_key, "a=b");
  EXPECT_EQ(found.region, "eu-west-1");
  EXPECT_EQ(found.endpoint, "http://store:9000");
}

TEST_F(S3SettingsTest, NeedNoFile) {
  EXPECT_EQ(io::S3Settings::find().access_key, "");
  set("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
  set("AWS_CONFIG_FILE", "/dev/null");
  EXPECT_EQ(io::S3Settings::find().access_key, "");
}

TEST_F(S3SettingsTest, AFileThatCannotBeReadIsNamed) {
  const std::string folder = dir_.path("folder"), endless = "/dev/zero";
  std::filesystem::create_directory(folder);
  for (const std::string& path : {folder, endless}) {
    set("AWS_SHARED_CREDENTIALS_FILE", path);
    const std::string text = error_text([] { io::S3Settings::find(); });
    EXPECT_NE(text.find(path), std::string::npos) << text;
  }
  set("AWS_ACCESS_KEY_ID", "key");  // the file is not needed
  EXPECT_EQ(error_text([] { io::S3Settings::find(); }), "");
}

// A program may have set a locale in which the byte E4 is a letter. The server encodes it all the
// same, and compares signatures.
TEST(S3Request, KeysAreEncodedAlikeInEveryLocale) {
  TempDir dir;
  const std::string name = "de_DE.ISO-8859-1";
  ASSERT_EQ(std::system(cat("localedef -i de_DE -f ISO-8859-1 ", dir.path(name)).c_str()), 0)
      << "install the package locales";
  setenv("LOCPATH", dir.path().c_str(), 1);
  std::locale::global(std::locale(name));  // that of C, too
  const bool letter = std::isalnum(0xE4);
  const std::string url = io::s3_request("s3://bucket/\xE4/1 b~", {}).url;
  std::locale::global(std::locale::classic());
  unsetenv("LOCPATH");
  EXPECT_TRUE(letter);
  EXPECT_EQ(url, "https://bucket.s3.us-east-1.amazonaws.com/%E4/1%20b~");
}

// tests/remote has the errors of reads.
TEST(S3Error, SaysWhatToChangeAndNothingSecret) {
  const auto error = [](long status, const std::string& xml, const io::S3Settings& settings) {
    io::HttpResponse answer;
    answer.status = status;
    for (const char c : xml) answer.body.push_back(static_cast<std::byte>(c));
    return io::s3_error(answer, settings);
  };
  const std::string expired =
      "<Error><Code>ExpiredToken</Code><Message>Too late</Message>"
      "<Token-0>secret</Token-0></Error>";
  EXPECT_EQ(error(400, expired, {.access_key = "a"}),
            "400 ExpiredToken: Too late; get new temporary credentials: AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN");
  EXPECT_EQ(error(403, "<Error><Code>AccessDenied</Code></Error>", {}),
            "403 AccessDenied; no credentials were found: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY");
  const std::string elsewhere =
      "<Code>AuthorizationHeaderMalformed</Code><Message>No</Message>"
      "<Region>eu-west-1</Region>";
  EXPECT_EQ(error(400, elsewhere, {.access_key = "a"}),
            "400 AuthorizationHeaderMalformed: No; the bucket lies in the region 'eu-west-1', not "
            "in 'us-east-1': set AWS_REGION");
  EXPECT_EQ(error(418, "a teapot", {.access_key = "a"}), "418 a teapot");
}

}  // namespace
}  // namespace etr::test
