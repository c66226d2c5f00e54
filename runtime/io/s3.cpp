#include "io/s3.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "core/error.h"
#include "core/platform.h"
#include "core/platform_pattern.h"
#include "core/sha256.h"
#include "core/text.h"

namespace etr::io {
namespace {

// Percent-encodes as RFC 3986 and the signature require.
std::string encode(std::string_view text, bool slashes) {
  // isalnum() would follow the program's locale.
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
  std::string out;
  for (const char c : text) {
    if (kPlain.find(c) != kPlain.npos || (c == '/' && !slashes)) {
      out += c;
      continue;
    }
    constexpr char kDigits[] = "0123456789ABCDEF";
    out += {'%', kDigits[static_cast<unsigned char>(c) >> 4],
            kDigits[static_cast<unsigned char>(c) & 15]};
  }
  return out;
}

// Returns an empty text if there is no such file, or /dev/null, which turns a file off.
std::string settings_in(const std::string& path) {
  std::error_code unknown;
  const bool regular = std::filesystem::is_regular_file(path, unknown);
  return !regular && platform::is_file_or_free(path) ? "" : platform::read_document(path);
}

// The keys of one section of an INI file, none if the file does not exist.
std::map<std::string, std::string> ini_section(const std::string& path,
                                               const std::vector<std::string>& names) {
  std::map<std::string, std::string> out;
  const std::string whole = settings_in(path);
  bool inside = false;
  for (const std::string_view line : split(whole, '\n')) {
    const std::string_view text = trim(line);
    if (text.starts_with('[')) {
      const std::string name(trim(text.substr(1, text.find(']') - 1)));
      inside = std::find(names.begin(), names.end(), name) != names.end();
    }
    const size_t equals = text.find('=');
    if (!inside || equals == std::string_view::npos || text.starts_with('#')) continue;
    out[std::string(trim(text.substr(0, equals)))] = trim(text.substr(equals + 1));
  }
  return out;
}

struct Address {
  std::string bucket, key;
};

Address parse(const std::string& address) {
  const size_t slash = address.find('/', 5);
  Address out{address.substr(5, slash == std::string::npos ? slash : slash - 5),
              slash == std::string::npos ? "" : address.substr(slash + 1)};
  if (out.bucket.empty())
    fail(Code::invalid_argument, "'", address, "' is not an address of the form s3://BUCKET/KEY");
  return out;
}

// The UTF-8 of a character; "" if XML cannot mean it.
std::string utf8_of(uint32_t character) {
  if (character == 0 || character > 0x10FFFF || (character >= 0xD800 && character < 0xE000))
    return "";
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  std::string out;
  int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr unsigned kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kFirst[more] | character >> (6 * more));
  while (more-- > 0) out += static_cast<char>(0x80 | (character >> (6 * more) & 0x3F));
  return out;
}

// What "&NAME;" stands for; "" if that is not known. Some servers, such as those written in Go,
// give quotes by their numbers: "&#39;", "&#x27;".
std::string entity(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kNamed[] = {
      {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"amp", "&"}};
  for (const auto& [known, text] : kNamed)
    if (name == known) return text;
  if (!name.starts_with('#')) return "";
  name.remove_prefix(1);
  const bool hex = name.starts_with('x');
  if (hex) name.remove_prefix(1);
  uint32_t character = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, character, hex ? 16 : 10);
  return error == std::errc() && stop == end ? utf8_of(character) : "";
}

std::string without_entities(std::string_view text) {
  constexpr size_t kLongest = 10;  // "&#1114111;"
  std::string out;
  while (!text.empty()) {
    const size_t end = text[0] == '&' ? text.substr(0, kLongest).find(';') : text.npos;
    const std::string meant = end == text.npos ? "" : entity(text.substr(1, end - 1));
    out += meant.empty() ? text.substr(0, 1) : meant;
    text.remove_prefix(meant.empty() ? 1 : end + 1);
  }
  return out;
}

// The contents of all <name> elements.
std::vector<std::string> elements(const std::string& xml, const std::string& name) {
  std::vector<std::string> out;
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  for (size_t at = xml.find(open); at != std::string::npos; at = xml.find(open, at)) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == std::string::npos) break;
    out.push_back(without_entities(std::string_view(xml).substr(at, end - at)));
    at = end + close.size();
  }
  return out;
}

// What to do about an error of a store, by its code.
std::string remedy_for(const std::string& code) {
  constexpr std::pair<std::string_view, std::string_view> kRemedies[] = {
      {"AccessDenied",
       "these credentials do not allow reading it (s3:GetObject; for a pattern, "
       "s3:ListBucket), or there is no such object"},
      {"AuthorizationHeaderMalformed", "set AWS_REGION to the bucket's region"},
      {"ExpiredToken",
       "get new temporary credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
       "and AWS_SESSION_TOKEN"},
      {"InvalidAccessKeyId", "set AWS_ACCESS_KEY_ID; a temporary key also needs AWS_SESSION_TOKEN"},
      {"InvalidToken", "set AWS_SESSION_TOKEN to the token that came with AWS_ACCESS_KEY_ID"},
      {"NoSuchBucket", "there is no such bucket at this endpoint"},
      {"RequestTimeTooSkewed", "set this machine's clock"},
      {"SignatureDoesNotMatch", "set AWS_SECRET_ACCESS_KEY to that of AWS_ACCESS_KEY_ID"},
      {"TokenRefreshRequired",
       "get new temporary credentials: AWS_ACCESS_KEY_ID, "
       "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"},
  };
  for (const auto& [known, remedy] : kRemedies)
    if (code == known) return std::string(remedy);
  return "";
}

constexpr size_t kMostPages = 100'000;                // of 1,000 objects
constexpr uint64_t kMostOfPage = 64 << 20;            // bytes
constexpr size_t kMostOfKey = 1024;                   // bytes, as S3 has it
constexpr size_t kMostOfToken = 8192;                 // bytes; servers take no longer addresses
constexpr int kMostEmptyPages = 1000;                 // in a row
constexpr uint64_t kMostOfNames = uint64_t{1} << 30;  // bytes of all that match

}  // namespace

S3Page s3_page_of(const HttpResponse& answer, const S3Settings& settings,
                  const std::string& pattern) {
  if (answer.status != 200)
    fail(answer.status == 404 ? Code::not_found : Code::io, "cannot list '", pattern,
         "': the server answers ", s3_error(answer, settings));
  const std::string xml(reinterpret_cast<const char*>(answer.body.data()), answer.body.size());
  const auto bad = [&](const char* why) {
    fail(Code::io, "cannot list '", pattern, "': ", why, ": ", answer.body_text());
  };
  if (xml.find("</ListBucketResult>") == std::string::npos)
    bad("the server's answer is not a list of objects");
  S3Page page;
  page.keys = elements(xml, "Key");
  for (const std::string& key : page.keys)
    if (key.size() > kMostOfKey) bad("the server's list has a key of more than 1,024 bytes");
  const auto next = elements(xml, "NextContinuationToken"), more = elements(xml, "IsTruncated");
  if (!next.empty()) page.next = next[0];
  if (page.next.size() > kMostOfToken)
    bad("the server's list goes on with a token of more than 8,192 bytes");
  if (page.next.empty() && !more.empty() && more[0] == "true")
    bad("the server's list goes on, and it does not say how to ask for the rest");
  return page;
}

S3Settings S3Settings::find() {
  const auto first = [](std::initializer_list<std::string> candidates) {
    for (const std::string& text : candidates)
      if (!text.empty()) return text;
    return std::string();
  };
  using platform::variable;
  const std::string home = platform::home_directory() + "/.aws/",
                    profile = first({variable("AWS_PROFILE"), "default"});
  auto config = ini_section(first({variable("AWS_CONFIG_FILE"), home + "config"}),
                            {"profile " + profile, profile});
  S3Settings out;
  out.access_key = variable("AWS_ACCESS_KEY_ID");
  if (!out.access_key.empty()) {  // keep the keys of one source together
    out.secret_key = variable("AWS_SECRET_ACCESS_KEY");
    out.session_token = variable("AWS_SESSION_TOKEN");
  } else {
    auto credentials = ini_section(
        first({variable("AWS_SHARED_CREDENTIALS_FILE"), home + "credentials"}), {profile});
    auto& from = credentials.contains("aws_access_key_id") ? credentials : config;
    out.access_key = from["aws_access_key_id"];
    out.secret_key = from["aws_secret_access_key"];
    out.session_token = from["aws_session_token"];
  }
  out.region =
      first({variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), config["region"], out.region});
  out.endpoint = first(
      {variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"), config["endpoint_url"]});
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  return out;
}

std::vector<std::string> sign_v4(const std::string& url, const S3Settings& settings,
                                 std::chrono::system_clock::time_point now) {
  const std::string time = platform::utc_text(now, "%Y%m%dT%H%M%SZ"), day = time.substr(0, 8);

  const size_t host_at = url.find("://") + 3, path_at = url.find('/', host_at);
  const size_t query_at = std::min(url.find('?'), url.size());
  const std::string host = url.substr(host_at, path_at - host_at);
  const std::string path = url.substr(path_at, query_at - path_at);
  const std::string query = query_at < url.size() ? url.substr(query_at + 1) : "";
  const std::string nothing = to_hex(sha256(""));
  std::vector<std::pair<std::string, std::string>> headers = {
      {"host", host}, {"x-amz-content-sha256", nothing}, {"x-amz-date", time}};
  if (!settings.session_token.empty())
    headers.emplace_back("x-amz-security-token", settings.session_token);
  std::string listed, names;
  for (const auto& [name, value] : headers) {
    listed += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      "GET\n" + path + "\n" + query + "\n" + listed + "\n" + names + "\n" + nothing;
  const std::string scope = day + "/" + settings.region + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + to_hex(sha256(canonical));
  const std::string key = hmac_sha256(
      hmac_sha256(hmac_sha256(hmac_sha256("AWS4" + settings.secret_key, day), settings.region),
                  "s3"),
      "aws4_request");
  std::vector<std::string> out;
  for (const auto& [name, value] : headers)
    if (name != "host") out.push_back(name + ": " + value);
  out.push_back("Authorization: AWS4-HMAC-SHA256 Credential=" + settings.access_key + "/" + scope +
                ", SignedHeaders=" + names + ", Signature=" + to_hex(hmac_sha256(key, to_sign)));
  return out;
}

HttpRequest s3_request(const std::string& address, const S3Settings& settings,
                       const std::string& query) {
  const Address at = parse(address);
  HttpRequest request;
  request.follow_redirects = false;
  request.keep_path = true;  // a key may contain "/../"
  if (!settings.endpoint.empty())
    request.url = settings.endpoint + "/" + at.bucket;
  else if (at.bucket.find('.') != std::string::npos)  // wildcard certificates cover one label
    request.url = "https://s3." + settings.region + ".amazonaws.com/" + at.bucket;
  else
    request.url = "https://" + at.bucket + ".s3." + settings.region + ".amazonaws.com";
  request.url += "/" + encode(at.key, /*slashes=*/false);
  if (!query.empty()) request.url += "?" + query;
  if (!settings.access_key.empty())
    request.headers = sign_v4(request.url, settings, std::chrono::system_clock::now());
  return request;
}

std::string s3_error(const HttpResponse& answer, const S3Settings& settings) {
  const std::string code = without_entities(answer.element("Code"));
  std::string remedy = remedy_for(code);
  const bool is_elsewhere = answer.status == 301 || answer.status == 307;
  if (is_elsewhere || code == "AuthorizationHeaderMalformed") {
    std::string region = answer.header("x-amz-bucket-region");
    if (region.empty()) region = without_entities(answer.element("Region"));
    if (!region.empty() && region != settings.region)
      remedy = cat("the bucket lies in the region '", readable(region), "', not in '",
                   settings.region, "': set AWS_REGION");
    else if (is_elsewhere)
      remedy = cat("the bucket lies in another region than '", settings.region,
                   "', or at another endpoint: set AWS_REGION or AWS_ENDPOINT_URL");
  } else if (settings.access_key.empty() && (answer.status == 401 || answer.status == 403)) {
    remedy = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
  }
  return cat(answer.status, " ", answer.body_text(), remedy.empty() ? "" : "; ", remedy);
}

std::vector<std::string> s3_list(const std::string& pattern, const RemoteOptions& options) {
  const S3Settings settings = S3Settings::find();
  const Address at = parse(pattern);
  const std::string prefix = at.key.substr(0, at.key.find_first_of("*?["));
  HttpConnection connection(options);
  std::vector<std::string> found;
  std::set<std::string> tokens;  // hashes
  std::string first;             // key
  uint64_t bytes = 0;
  int empty_pages = 0;
  for (std::string token;;) {
    std::string query;
    if (!token.empty()) query = "continuation-token=" + encode(token, true) + "&";
    query += "list-type=2&prefix=" + encode(prefix, true);
    const S3Page page = s3_page_of(
        connection.get([&] { return s3_request("s3://" + at.bucket + "/", settings, query); },
                       kMostOfPage, "for a list of objects"),
        settings, pattern);
    const auto unending = [&](const char* how) {
      fail(Code::io, "cannot list '", pattern, "': the server's list does not end; ", how,
           " after ", counted(static_cast<int64_t>(tokens.size()), "page"));
    };
    empty_pages = page.keys.empty() ? empty_pages + 1 : 0;
    if (empty_pages > kMostEmptyPages) unending("it has 1,000 pages without an object in a row");
    if (!page.keys.empty()) {
      if (page.keys[0] == first) unending("it begins anew");
      if (first.empty()) first = page.keys[0];
    }
    for (const std::string& key : page.keys) {
      if (!platform::matches_pattern(key, at.key)) continue;
      found.push_back("s3://" + at.bucket + "/" + key);
      bytes += found.back().size();
    }
    if (bytes > kMostOfNames)
      fail(Code::unsupported, "cannot list '", pattern,
           "': the names of the objects that match have more than 1 GiB; use a narrower pattern");
    if (page.next.empty()) break;
    token = page.next;
    if (!tokens.insert(sha256(token)).second) unending("it goes on where it went on before");
    if (tokens.size() > kMostPages) unending("it goes on");
  }
  if (found.empty()) fail(Code::not_found, "no object matches '", pattern, "'");
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace etr::io
