// Java: unchecked exceptions, direct buffers on the library's memory, worker threads attached as
// daemons.

%{
#include <jni.h>

namespace {

JavaVM* echotrain_jvm = nullptr;

// Converts UTF-8 to a Java string. NewStringUTF would take it for JNI's "modified UTF-8", which
// writes characters beyond U+FFFF in another way.
jstring echotrain_string(JNIEnv* env, const std::string& utf8) {
  std::u16string units;
  units.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    const auto first = static_cast<unsigned char>(utf8[i++]);
    const int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    uint32_t c = more == 0 ? first : first & (0x3F >> more);
    for (int k = 0; k < more && i < utf8.size(); ++k) c = c << 6 | (utf8[i++] & 0x3F);
    if (c >= 0x10000) units += static_cast<char16_t>(0xD7C0 + (c >> 10));
    units += static_cast<char16_t>(c >= 0x10000 ? 0xDC00 + (c & 0x3FF) : c);
  }
  return env->NewString(reinterpret_cast<const jchar*>(units.data()),
                        static_cast<jsize>(units.size()));
}

void echotrain_throw(JNIEnv* env, int status, const char* message) {
  const jclass type = env->FindClass("io/echotrain/EchoTrainException");
  if (!type) return;  // a NoClassDefFoundError is pending
  const jmethodID make = env->GetMethodID(type, "<init>", "(ILjava/lang/String;)V");
  const jstring text = echotrain_string(env, message);
  if (!make || !text) return;
  const jobject error = env->NewObject(type, make, static_cast<jint>(status), text);
  if (error) env->Throw(static_cast<jthrowable>(error));
}

// Worker threads stay attached, as daemons, until they end, because attaching for each sample would
// cost more than the sample.
void echotrain_enter() {
  struct Attached {
    ~Attached() {
      if (mine) echotrain_jvm->DetachCurrentThread();
    }
    bool mine = false;
  };
  thread_local Attached attached;
  void* env = nullptr;
  if (echotrain_jvm->GetEnv(&env, JNI_VERSION_1_8) == JNI_EDETACHED)
    attached.mine = echotrain_jvm->AttachCurrentThreadAsDaemon(&env, nullptr) == JNI_OK;
  // Such a thread never returns to Java, so nothing else would free the call's local references.
  if (env) static_cast<JNIEnv*>(env)->PushLocalFrame(16);
}

void echotrain_leave() {
  void* env = nullptr;
  if (echotrain_jvm->GetEnv(&env, JNI_VERSION_1_8) == JNI_OK)
    static_cast<JNIEnv*>(env)->PopLocalFrame(nullptr);
}

}  // namespace

extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void*) {
  echotrain_jvm = vm;
  echotrain::facade::hooks() = {echotrain_enter, echotrain_leave};
  return JNI_VERSION_1_8;
}
%}

%exception {
  try {
    $action
  } catch (const echotrain::Error& error) {
    echotrain_throw(jenv, error.status(), error.what());
    return $null;
  } catch (const std::exception& error) {
    echotrain_throw(jenv, ETR_INTERNAL, error.what());
    return $null;
  }
}

// Strings are passed as UTF-8, in both directions. JNI's own "modified UTF-8" also writes NUL as two
// bytes, which would end up in paths.
%{
namespace {

bool echotrain_is_surrogate(uint32_t unit) { return unit >> 11 == 0x1B; }

// Converts the argument `name` to UTF-8. An unpaired surrogate, which has no UTF-8 form, is an
// error.
std::string echotrain_utf8(JNIEnv* env, jstring text, const char* name) {
  const jsize size = env->GetStringLength(text);
  std::vector<jchar> units(static_cast<size_t>(size));
  env->GetStringRegion(text, 0, size, units.data());
  std::string out;
  for (size_t i = 0; i < units.size(); ++i) {
    uint32_t c = units[i];
    const bool pair = c >> 10 == 0x36 && i + 1 < units.size() && units[i + 1] >> 10 == 0x37;
    if (pair) c = 0x10000 + ((c & 0x3FF) << 10) + (units[++i] & 0x3FF);
    if (echotrain_is_surrogate(c))
      throw echotrain::Error(ETR_INVALID_ARGUMENT,
                             std::string("argument '") + name + "' has a surrogate without its other half at index " +
                                 std::to_string(i) + ", which no UTF-8 text can hold");
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr uint32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kFirst[more] | c >> 6 * more);
    for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80 | (c >> 6 * k & 0x3F));
  }
  return out;
}

}  // namespace
%}
%typemap(in) const std::string& (std::string utf8) {
  if (!$input) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "argument '$1_name' is null");
    return $null;
  }
  try {
    utf8 = echotrain_utf8(jenv, $input, "$1_name");
  } catch (const echotrain::Error& error) {
    echotrain_throw(jenv, error.status(), error.what());
    return $null;
  }
  $1 = &utf8;
}
%typemap(out) std::string { $result = echotrain_string(jenv, $1); }
%typemap(out) const std::string& { $result = echotrain_string(jenv, *$1); }
%typemap(directorin, descriptor="Ljava/lang/String;") const std::string& %{
  $input = echotrain_string(jenv, $1);
  Swig::LocalRefGuard $1_refguard(jenv, $input);
%}
%typemap(directorout) std::string {
  if (!$input) return $null;  // an exception is pending
  $result = echotrain_utf8(jenv, $input, "result");
}

// Lists are passed as arrays. The proxy of a vector would keep its native memory until it is
// deleted.
%{
namespace {

std::vector<long long> echotrain_numbers(JNIEnv* env, jlongArray array) {
  std::vector<jlong> numbers(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetLongArrayRegion(array, 0, static_cast<jsize>(numbers.size()), numbers.data());
  return {numbers.begin(), numbers.end()};
}

jlongArray echotrain_array(JNIEnv* env, const std::vector<long long>& numbers) {
  const std::vector<jlong> values(numbers.begin(), numbers.end());
  const auto size = static_cast<jsize>(values.size());
  const jlongArray array = env->NewLongArray(size);
  if (array) env->SetLongArrayRegion(array, 0, size, values.data());
  return array;
}

// An element that is null is an error.
std::vector<std::string> echotrain_texts(JNIEnv* env, jobjectArray array, const char* name) {
  const jsize size = env->GetArrayLength(array);
  std::vector<std::string> texts;
  for (jsize i = 0; i < size; ++i) {
    const auto text = static_cast<jstring>(env->GetObjectArrayElement(array, i));
    if (!text)
      throw echotrain::Error(ETR_INVALID_ARGUMENT, std::string("argument '") + name + "' has null at index " +
                                                       std::to_string(i) + "; give a text");
    texts.push_back(echotrain_utf8(env, text, name));
    env->DeleteLocalRef(text);
  }
  return texts;
}

jobjectArray echotrain_array(JNIEnv* env, const std::vector<std::string>& texts) {
  const jclass type = env->FindClass("java/lang/String");
  if (!type) return nullptr;
  const jobjectArray array = env->NewObjectArray(static_cast<jsize>(texts.size()), type, nullptr);
  for (size_t i = 0; array && i < texts.size(); ++i) {
    const jstring text = echotrain_string(env, texts[i]);
    if (!text) return nullptr;  // an exception is pending
    env->SetObjectArrayElement(array, static_cast<jsize>(i), text);
    env->DeleteLocalRef(text);
  }
  return array;
}

}  // namespace
%}
%define ECHOTRAIN_ARRAY(ELEMENT, JNI, JAVA)
%typemap(jni) std::vector<ELEMENT>, const std::vector<ELEMENT>& "JNI"
%typemap(jtype) std::vector<ELEMENT>, const std::vector<ELEMENT>& "JAVA"
%typemap(jstype) std::vector<ELEMENT>, const std::vector<ELEMENT>& "JAVA"
%typemap(javain) const std::vector<ELEMENT>& "$javainput"
%typemap(javaout) std::vector<ELEMENT> { return $jnicall; }
%typemap(out) std::vector<ELEMENT> { $result = echotrain_array(jenv, $1); }
%enddef
ECHOTRAIN_ARRAY(long long, jlongArray, long[])
ECHOTRAIN_ARRAY(std::string, jobjectArray, String[])
%typemap(in) const std::vector<long long>& (std::vector<long long> numbers) {
  if (!$input) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "argument '$1_name' is null");
    return $null;
  }
  numbers = echotrain_numbers(jenv, $input);
  $1 = &numbers;
}
%typemap(in) const std::vector<std::string>& (std::vector<std::string> texts) {
  if (!$input) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "argument '$1_name' is null");
    return $null;
  }
  try {
    texts = echotrain_texts(jenv, $input, "$1_name");
  } catch (const echotrain::Error& error) {
    echotrain_throw(jenv, error.status(), error.what());
    return $null;
  }
  $1 = &texts;
}

// The hand-written layer frees natives through a Cleaner, which watches the proxy: the generated
// calls pass it on, so that it stays reachable during a call even if its owner does not.
%typemap(javafinalize) SWIGTYPE ""
%define ECHOTRAIN_HANDLE(NAME)
%typemap(javacode) echotrain::facade::NAME %{
  /** Returns a function that frees the native object instead of {@link #delete}, and does not refer
   * to the proxy. */
  public Runnable release() {
    long pointer = swigCPtr;
    swigCMemOwn = false;
    return () -> BindingsJNI.delete_$javaclassname(pointer);
  }
%}
%enddef
ECHOTRAIN_HANDLE(BatchHandle)
ECHOTRAIN_HANDLE(PipelineHandle)
ECHOTRAIN_HANDLE(ModelHandle)
ECHOTRAIN_HANDLE(RuntimeHandle)
ECHOTRAIN_HANDLE(JobHandle)
ECHOTRAIN_HANDLE(TrainerHandle)
ECHOTRAIN_HANDLE(RunHandle)
ECHOTRAIN_HANDLE(ServerHandle)
ECHOTRAIN_HANDLE(StudyHandle)

// Java has no unsigned 64-bit integer; addresses are passed as long.
%apply long long { uint64_t };

// Memory is passed as a direct java.nio.ByteBuffer, in both directions.
%typemap(jni) echotrain::facade::Memory "jobject"
%typemap(jtype) echotrain::facade::Memory "java.nio.ByteBuffer"
%typemap(jstype) echotrain::facade::Memory "java.nio.ByteBuffer"
%typemap(javaout) echotrain::facade::Memory { return $jnicall; }
%typemap(out) echotrain::facade::Memory {
  $result = jenv->NewDirectByteBuffer(const_cast<void*>($1.data), $1.size_bytes);
}
%typemap(jni) const void* direct "jobject"
%typemap(jtype) const void* direct "java.nio.ByteBuffer"
%typemap(jstype) const void* direct "java.nio.ByteBuffer"
%typemap(javain) const void* direct "$javainput"
%typemap(in) const void* direct { $1 = jenv->GetDirectBufferAddress($input); }

%inline %{
namespace echotrain::facade {

struct Memory {
  const void* data;
  int64_t size_bytes;
};

// Refuses more than a ByteBuffer can hold: NewDirectByteBuffer would take the size modulo 2^32.
inline Memory memory_at(uint64_t address, int64_t size_bytes) {
  if (size_bytes > INT32_MAX)
    throw Error(ETR_UNSUPPORTED, "an array of " + std::to_string(size_bytes) +
                                     " bytes does not fit a java.nio.ByteBuffer, which holds less "
                                     "than 2 GiB; make the batches smaller");
  return {reinterpret_cast<const void*>(address), size_bytes};
}

// Refuses a name that the library cannot take, as a call with it does.
inline void check_name(const std::string& name) { detail::c_string(name, "name"); }

}  // namespace echotrain::facade
%}
%ignore echotrain::facade::Memory;

%extend echotrain::facade::Tensor {
  echotrain::facade::Memory memory() const {
    return echotrain::facade::memory_at($self->address(), $self->size_bytes());
  }
}
%extend echotrain::facade::TransportCall {
  echotrain::facade::Memory input_memory() const {
    return echotrain::facade::memory_at($self->input(), $self->input_bytes());
  }
  echotrain::facade::Memory output_memory() const {
    return echotrain::facade::memory_at($self->output(), $self->output_bytes());
  }
}
%extend echotrain::facade::BatchHandle {
  // Sets a field to a copy of a direct buffer.
  void set_direct(const std::string& field, int dtype, const std::vector<long long>& shape,
                  const void* direct) {
    $self->set(field, dtype, shape, reinterpret_cast<uint64_t>(direct));
  }
}
