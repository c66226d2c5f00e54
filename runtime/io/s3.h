// S3-compatible object stores: addresses, credentials, signatures (AWS Signature Version 4),
// listings.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "io/http.h"

namespace etr::io {

struct S3Settings {
  std::string access_key, secret_key, session_token;  // no access key: unsigned requests
  std::string region = "us-east-1";
  std::string endpoint;  // "http://127.0.0.1:9000"; "": Amazon's endpoint

  // Reads the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION,
  // AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL). What is missing there comes from
  // the profile AWS_PROFILE of ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE,
  // AWS_CONFIG_FILE).
  static S3Settings find();
};

// The signed headers of a GET of `url` at time `now`. See "Authenticating Requests (AWS Signature
// Version 4)" in the S3 documentation.
std::vector<std::string> sign_v4(const std::string& url, const S3Settings& settings,
                                 std::chrono::system_clock::time_point now);

// The request for "s3://bucket/key". `query` is appended verbatim, so it must be sorted and
// encoded.
HttpRequest s3_request(const std::string& address, const S3Settings& settings,
                       const std::string& query = "");

// One page of a list of objects.
struct S3Page {
  std::vector<std::string> keys;
  std::string next;  // token of the next page; "": this is the last one
};
// Parses an answer to the request for a list (ListObjectsV2). Throws Error(io) or
// Error(not_found), which name the pattern.
S3Page s3_page_of(const HttpResponse& answer, const S3Settings& settings,
                  const std::string& pattern);

// For errors: what an answer with another status than 200 says (HttpResponse::body_text), and what
// can be done about it.
std::string s3_error(const HttpResponse& answer, const S3Settings& settings);

// The addresses of all objects that match a pattern like "s3://bucket/train-*.tar". Throws
// Error(io) or Error(not_found).
std::vector<std::string> s3_list(const std::string& pattern, const RemoteOptions& options);

}  // namespace etr::io
