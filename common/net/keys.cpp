#include "common/net/keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>
#include <zmq.h>

#include <array>
#include <memory>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

// Labels of derived keys. A label must never change its meaning, or programs of two releases would
// disagree.
constexpr const char* kServer = "pushpull v1 server";  // the coordinator and data listeners
constexpr const char* kMember = "pushpull v1 member";
constexpr const char* kObserver = "pushpull v1 observer";
constexpr const char* kData = "pushpull v2 data of run ";

constexpr size_t kZ85Bytes = 41;  // 32 bytes in Z85, and the terminating 0

KeyNumber derive(const SecretKey& key, std::string info) {
  using Context = std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)>;
  using Algorithm = std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)>;
  const Algorithm algorithm(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  PP_ASSERT(algorithm != nullptr);
  const Context context(EVP_KDF_CTX_new(algorithm.get()), EVP_KDF_CTX_free);
  KeyNumber secret = key.secret;
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 4> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  KeyNumber out{};
  PP_ASSERT(context != nullptr &&
            EVP_KDF_derive(context.get(), out.data(), out.size(), parameters.data()) == 1);
  return out;
}

std::string z85(const KeyNumber& number) {
  std::array<char, kZ85Bytes> text{};
  PP_ASSERT(zmq_z85_encode(text.data(), number.data(), number.size()) != nullptr);
  return text.data();
}

CurvePair pair_of(const KeyNumber& secret) {
  CurvePair pair;
  pair.secret_key = z85(secret);
  std::array<char, kZ85Bytes> text{};
  if (zmq_curve_public(text.data(), pair.secret_key.c_str()) != 0) {
    throw Error(ErrorCode::kFailed,
                "[key] this libzmq was built without CURVE (libsodium); install one with it, or "
                "use --insecure on a network that you trust");
  }
  pair.public_key = text.data();
  return pair;
}

CurvePair pair_of(const SecretKey& key, const char* role) { return pair_of(derive(key, role)); }

}  // namespace

Keys::Keys(AnyKey key, std::string source) : key_(key), source_(std::move(source)) {}

const SecretKey& Keys::secret() const {
  PP_ASSERT(key_);
  if (const auto* secret = std::get_if<SecretKey>(&*key_)) return *secret;
  throw Error(ErrorCode::kUsage, "[key] " + source_ +
                                     " is an observer's key, which reads the status of a job and "
                                     "nothing else; name the job's key with --key FILE");
}

KeyNumber Keys::data_key(uint64_t run_id) const {
  return derive(secret(), kData + std::to_string(run_id));
}

Demand Keys::control_demand() const {
  Demand out;
  if (insecure()) return out;
  out.proof = Proof::kCurve;
  out.server = pair_of(secret(), kServer);
  out.member = pair_of(secret(), kMember).public_key;
  out.observer = pair_of(secret(), kObserver).public_key;
  return out;
}

Credentials Keys::control_credentials() const {
  Credentials out;
  out.source = source_;
  if (insecure()) return out;
  out.proof = Proof::kCurve;
  if (const auto* observer = std::get_if<ObserverKey>(&*key_)) {
    out.own = pair_of(observer->secret);
    out.server_public = z85(observer->server_public);
    return out;
  }
  out.own = pair_of(secret(), kMember);
  out.server_public = pair_of(secret(), kServer).public_key;
  return out;
}

Demand Keys::data_demand(bool encrypted, uint64_t run_id, const std::string& listener) const {
  Demand out;
  if (insecure()) return out;
  if (encrypted) {
    out = control_demand();
    out.observer.clear();
    return out;
  }
  out.proof = Proof::kChallenge;
  out.data_key = data_key(run_id);
  out.listener = listener;
  return out;
}

Credentials Keys::data_credentials(bool encrypted, uint64_t run_id) const {
  if (insecure()) return {};
  secret();  // throws for an observer, which has no data connections
  if (encrypted) return control_credentials();
  Credentials out;
  out.proof = Proof::kChallenge;
  out.data_key = data_key(run_id);
  out.source = source_;
  return out;
}

ObserverKey Keys::observer_key() const {
  if (insecure()) {
    throw Error(ErrorCode::kUsage,
                "[key] without a key there are no observers; leave --insecure out");
  }
  ObserverKey out;
  out.secret = derive(secret(), kObserver);
  const CurvePair server = pair_of(secret(), kServer);
  PP_ASSERT(zmq_z85_decode(out.server_public.data(), server.public_key.c_str()) != nullptr);
  return out;
}

SecretKey new_secret_key() {
  SecretKey key;
  PP_ASSERT(getrandom(key.secret.data(), key.secret.size(), 0) ==
            static_cast<ssize_t>(key.secret.size()));
  return key;
}

}  // namespace pushpull
