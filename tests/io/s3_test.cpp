// Object stores: where access keys and settings come from, requests, signatures, lists.
#include "io/s3.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <span>

#include "core/error.h"
#include "io/pieces.h"
#include "io/remote_file.h"
#include "support/error_text.h"
#include "support/http_server.h"
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
        "aws_session_token = zero\n[default]\naws_access_key_id = one\n\n[ other ]\r\n# "
        "aws_access_key_id = no\r\n"
        "aws_access_key_id=two\r\naws_secret_access_key = a=b\r\n");
  write("config", "[profile other]\nregion = eu-west-1\nendpoint_url = http://store:9000/");
  EXPECT_EQ(io::S3Settings::find().access_key, "one");
  EXPECT_EQ(io::S3Settings::find().session_token, "") << "what is in front of all profiles";
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

// The keys of one source are kept together.
TEST_F(S3SettingsTest, KeysComeFromOnePlace) {
  const auto keys = [] {
    const auto found = io::S3Settings::find();
    return cat(found.access_key, " ", found.secret_key, " ", found.session_token);
  };
  write("config",
        "[profile default]\naws_access_key_id=c\naws_secret_access_key=cs\n"
        "aws_session_token=ct\n");
  EXPECT_EQ(keys(), "c cs ct");
  write("credentials", "[default]\naws_access_key_id=f\naws_session_token=ft\n");
  EXPECT_EQ(keys(), "f  ft");
  set("AWS_SECRET_ACCESS_KEY", "es");
  EXPECT_EQ(keys(), "f  ft");
  set("AWS_ACCESS_KEY_ID", "e");
  EXPECT_EQ(keys(), "e es ");
  set("AWS_SESSION_TOKEN", "et");
  EXPECT_EQ(keys(), "e es et");
}

TEST_F(S3SettingsTest, TheNearestPlaceCounts) {
  const auto places = [] {
    const auto found = io::S3Settings::find();
    return cat(found.region, " ", found.endpoint);
  };
  write("config", "[default]\nregion = r1\nendpoint_url = http://e1//\nregion\n");
  EXPECT_EQ(places(), "r1 http://e1");
  set("AWS_DEFAULT_REGION", "r2");
  set("AWS_ENDPOINT_URL", "http://e2");
  EXPECT_EQ(places(), "r2 http://e2");
  set("AWS_REGION", "r3");
  set("AWS_ENDPOINT_URL_S3", "http://e3");
  EXPECT_EQ(places(), "r3 http://e3");
}

// The examples of "Authenticating Requests (AWS Signature Version 4)" in the S3 documentation.
TEST(S3Request, IsSignedAsTheDocumentationHasIt) {
  io::S3Settings settings;
  settings.access_key = "AKIAIOSFODNN7EXAMPLE";
  settings.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  const auto time = std::chrono::system_clock::from_time_t(1369353600);  // 2013-05-24
  const auto signed_headers = [&](const char* query) {
    return io::sign_v4(cat("https://examplebucket.s3.amazonaws.com/", query), settings, time);
  };
  const std::string nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                    from =
                        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/"
                        "20130524/us-east-1/s3/aws4_request, SignedHeaders=";
  EXPECT_EQ(signed_headers("?lifecycle="),
            (std::vector<std::string>{
                "x-amz-content-sha256: " + nothing, "x-amz-date: 20130524T000000Z",
                from + "host;x-amz-content-sha256;x-amz-date, Signature="
                       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"}));
  EXPECT_TRUE(signed_headers("?max-keys=2&prefix=J")[2].ends_with(
      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
  settings.session_token = "token";
  const auto with_token = signed_headers("?lifecycle=");
  ASSERT_EQ(with_token.size(), 4u);
  EXPECT_EQ(with_token[2], "x-amz-security-token: token");
  EXPECT_TRUE(with_token[3].starts_with(
      from + "host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature="));
}

TEST(S3Request, GoesToTheBucketsAddress) {
  io::S3Settings settings;
  const auto url = [&](const char* address, const char* query = "") {
    return io::s3_request(address, settings, query).url;
  };
  EXPECT_EQ(url("s3://b/a/c"), "https://b.s3.us-east-1.amazonaws.com/a/c");
  EXPECT_EQ(url("s3://b"), "https://b.s3.us-east-1.amazonaws.com/");
  EXPECT_EQ(url("s3://b/", "x=y"), "https://b.s3.us-east-1.amazonaws.com/?x=y");
  settings.region = "eu";
  EXPECT_EQ(url("s3://b.c/a"), "https://s3.eu.amazonaws.com/b.c/a");
  settings.endpoint = "http://here:1";
  EXPECT_EQ(url("s3://b.c/a/../d"), "http://here:1/b.c/a/../d");
  EXPECT_EQ(url("s3://b/\x0f\xf0?#%+"), "http://here:1/b/%0F%F0%3F%23%25%2B");
  for (const char* nowhere : {"s3://", "s3:///a"})
    EXPECT_EQ(error_text([&] { url(nowhere); }),
              cat("'", nowhere, "' is not an address of the form s3://BUCKET/KEY"));
  EXPECT_TRUE(io::s3_request("s3://b/a", settings).headers.empty());
  settings.access_key = "key";
  const io::HttpRequest request = io::s3_request("s3://b/a", settings);
  EXPECT_EQ(request.headers.size(), 3u);
  EXPECT_TRUE(request.keep_path);
  EXPECT_FALSE(request.follow_redirects) << "the signature covers the host's name";
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

// Reading an object of a store that refuses it.
TEST_F(S3SettingsTest, ARefusedObjectSaysWhatToSet) {
  std::string status;
  const HttpServer server([&](const std::string&) {
    return cat("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: 3\r\n",
               status[0] == '3' ? "x-amz-bucket-region: eu-west-1\r\nLocation: /\r\n" : "",
               "\r\nwhy");
  });
  set("AWS_ENDPOINT_URL", server.address());
  const auto said = [&](const char* wanted) {
    status = wanted;
    return error_text([] { io::open_remote("s3://b/a", {.retries = 0}); });
  };
  EXPECT_EQ(said("403 X"),
            "'s3://b/a': access denied: 403 why; no credentials were found: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  for (const char* moved : {"301", "307"})
    EXPECT_EQ(said(moved), cat("cannot read 's3://b/a': the server answers ", moved,
                               " why; the bucket lies in the region 'eu-west-1', not in "
                               "'us-east-1': set AWS_REGION"));
  EXPECT_EQ(said("400 X"), "cannot read 's3://b/a': the server answers 400 why");
  set("AWS_ACCESS_KEY_ID", "key");
  EXPECT_EQ(said("401 X"), "'s3://b/a': access denied: 401 why");
}

// What a store answers to requests for its lists, one after the other; the last answer again and
// again.
class S3List : public S3SettingsTest {
 protected:
  std::vector<std::string> list(const std::vector<std::string>& pages,
                                const std::string& pattern = "s3://b/*") {
    asked_.clear();
    const HttpServer server([&](const std::string& request) {
      const size_t begin = request.find(' ') + 1;
      asked_.push_back(request.substr(begin, request.find(' ', begin) - begin));
      const std::string& page = pages[std::min(asked_.size(), pages.size()) - 1];
      if (page.starts_with("HTTP")) return page;
      return cat("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ", page.size(),
                 "\r\n\r\n", page);
    });
    set("AWS_ENDPOINT_URL_S3", server.address());
    return io::s3_list(pattern, {.retries = 0});
  }
  std::string said(const std::vector<std::string>& pages, const std::string& pattern = "s3://b/*") {
    return error_text([&] { list(pages, pattern); });
  }
  // A page, after which the list goes on with `token`.
  static std::string page(const std::vector<std::string>& keys, const std::string& token = "") {
    std::string out = "<ListBucketResult>";
    for (const std::string& key : keys) out += "<Contents><Key>" + key + "</Key></Contents>";
    if (!token.empty()) out += "<NextContinuationToken>" + token + "</NextContinuationToken>";
    return out + "</ListBucketResult>";
  }

  std::vector<std::string> asked_;
};

TEST_F(S3List, HasTheKeysOfAllPagesThatMatch) {
  const std::vector<std::string> keys =
      list({page({"p/2&lt;&gt;&quot;&apos;&amp;&#", "p/1", "q/1"}, "t+/="), page({"p/3", "p/33"})},
           "s3://b/p/?[!3]*");
  EXPECT_EQ(keys, (std::vector<std::string>{"s3://b/p/2<>\"'&&#"}));
  EXPECT_EQ(asked_, (std::vector<std::string>{"/b/?list-type=2&prefix=p%2F",
                                              "/b/?continuation-token=t%2B%2F%3D&list-type=2&"
                                              "prefix=p%2F"}));
  EXPECT_EQ(list({page({"c", "a"}, "t"), page({"b"})}),
            (std::vector<std::string>{"s3://b/a", "s3://b/b", "s3://b/c"}));
  EXPECT_EQ(said({page({"c"})}, "s3://b/d*"), "no object matches 's3://b/d*'");
}

TEST_F(S3List, SaysWhatTheServerAnswers) {
  EXPECT_EQ(said({"HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngone"}),
            "cannot list 's3://b/*': the server answers 404 gone");
  for (const auto& [status, code] : {std::pair(404, Code::not_found), {400, Code::io}}) try {
      list({cat("HTTP/1.1 ", status, " X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")});
      ADD_FAILURE() << status;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << status;
    }
  EXPECT_EQ(said({"<Key>a</Key>"}),
            "cannot list 's3://b/*': the server's answer is not a list of objects: <Key>a</Key>");
  EXPECT_EQ(list({page({"a"}) + "<Key>b"}), std::vector<std::string>{"s3://b/a"});
  const std::string is_cut = "<IsTruncated>true</IsTruncated>";
  EXPECT_NE(said({page({"a"}) + is_cut}).find("does not say how to ask for the rest"),
            std::string::npos);
  EXPECT_EQ(list({page({"a"}) + "<IsTruncated>false</IsTruncated>"}).size(), 1u);
  EXPECT_EQ(list({page({"a"}, "t") + is_cut, page({"b"})}).size(), 2u);
}

TEST_F(S3List, KeysAndTokensHaveALimit) {
  EXPECT_EQ(list({page({std::string(1024, 'k')})}).size(), 1u);
  EXPECT_NE(said({page({std::string(1025, 'k')})}).find("a key of more than 1,024 bytes"),
            std::string::npos);
  EXPECT_EQ(list({page({"a"}, std::string(8192, 't')), page({"b"})}).size(), 2u);
  EXPECT_NE(said({page({"a"}, std::string(8193, 't'))}).find("a token of more than 8,192 bytes"),
            std::string::npos);
}

TEST_F(S3List, EndsThoughTheServersDoesNot) {
  EXPECT_EQ(said({page({"a"}, "1"), page({"b"}, "2"), page({"a"}, "3")}),
            "cannot list 's3://b/*': the server's list does not end; it begins anew after 2 pages");
  EXPECT_EQ(said({page({"a"}, "1"), page({"b"}, "2"), page({"c"}, "1")}),
            "cannot list 's3://b/*': the server's list does not end; it goes on where it went on "
            "before after 2 pages");
  std::vector<std::string> empty;
  for (int i = 0; i < 1000; ++i) empty.push_back(page({}, cat(i)));
  std::vector<std::string> pages = empty;
  pages.push_back(page({"a"}, "a"));  // what comes in between
  pages.insert(pages.end(), {page({}, "b"), page({"c"})});
  EXPECT_EQ(list(pages).size(), 2u);
  empty.push_back(page({}, "last"));
  EXPECT_NE(said(empty).find("1,000 pages without an object in a row"), std::string::npos);
}

// Servers may give any character by its number; those written in Go do for quotes.
TEST_F(S3List, KeysAreWithoutEntities) {
  const auto key = [](const std::string& text) {
    const std::string xml = "<ListBucketResult><Key>" + text + "</Key></ListBucketResult>";
    const auto bytes = std::as_bytes(std::span(xml));
    return io::s3_page_of({200, {}, {bytes.begin(), bytes.end()}}, {}, "s3://bucket/*").keys.at(0);
  };
  EXPECT_EQ(key("a&lt;&gt;&quot;&apos;&amp;lt;"), "a<>\"'&lt;");
  EXPECT_EQ(key("it&#39;s &#x22;&#228;&#x20ac;&#128512;"), "it's \"\u00e4\u20ac\U0001F600");
  for (const char* none : {"&", "&amp", "&nbsp;", "&#;", "&#x;", "&#0;", "&#xD800;", "&#x110000;",
                           "&#-1;", "&ltx;", "&;"})
    EXPECT_EQ(key(none), none);
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
