// Objects of S3-compatible stores: addresses, credentials, signatures (AWS Signature Version 4), listings.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "io/http.h"

namespace etr::io {

struct S3Settings {
  std::string access_key, secret_key, session_token;  // no access key: requests are not signed
  std::string region = "us-east-1";
  std::string endpoint;  // "http://127.0.0.1:9000"; "": Amazon's

  // From the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION,
  // AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL), or else from the profile AWS_PROFILE of
  // ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE).
  static S3Settings find();
};

// The signed headers for a GET of `url` at `now`; docs: "Authenticating Requests (AWS Signature Version 4)".
std::vector<std::string> sign_v4(const std::string& url, const S3Settings& settings,
                                 std::chrono::system_clock::time_point now);

// Of "s3://bucket/key". `query` is appended as it is: sorted and encoded.
HttpRequest s3_request(const std::string& address, const S3Settings& settings,
                       const std::string& query = "");

// The addresses of all objects that match: "s3://bucket/train-*.tar". Throws Error(io), Error(not_found).
std::vector<std::string> s3_list(const std::string& pattern, const RemoteOptions& options);

}  // namespace etr::io
