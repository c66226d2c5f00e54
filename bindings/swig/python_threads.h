// Releases and acquires the interpreter's lock (GIL) for the extension, in place of SWIG's own
// code.
//
// Up to version 3.13 CPython ends a thread that asks for the lock while the interpreter shuts down:
// pthread_exit unwinds its stack. The stack of a daemon thread in a call of the library has C++
// frames that must not be unwound, and SWIG's destructor asks for the lock once more, so the
// program would abort. Here such a thread waits for the end of the process, as it does from CPython
// 3.14 on.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <chrono>
#include <thread>

#define SWIG_PYTHON_NO_USE_GIL  // replaced by what follows
#define SWIG_PYTHON_THREAD_BEGIN_BLOCK echotrain::python::Locked _swig_thread_block
#define SWIG_PYTHON_THREAD_END_BLOCK _swig_thread_block.end()
#define SWIG_PYTHON_THREAD_BEGIN_ALLOW echotrain::python::Unlocked _swig_thread_allow
#define SWIG_PYTHON_THREAD_END_ALLOW _swig_thread_allow.end()

namespace echotrain {
namespace python {

[[noreturn]] inline void wait_for_the_end() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Returns the result of `ask`, unless CPython ends the thread in it; then it never returns.
template <typename Ask>
auto ask_for_lock(Ask ask) noexcept {
  try {
    return ask();
  } catch (...) {  // by pthread_exit: leaving this block would end the program
    wait_for_the_end();
  }
}

// The thread holds the lock during the lifetime of this object, or until end().
class Locked {
 public:
  Locked() : state_(ask_for_lock(&ask)) {}
  ~Locked() { end(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  void end() {
    if (has_it_) PyGILState_Release(state_);
    has_it_ = false;
  }

 private:
  static PyGILState_STATE ask() {
    const bool is_librarys = PyGILState_GetThisThreadState() == nullptr;
    if (is_librarys && !Py_IsInitialized()) wait_for_the_end();  // the interpreter is gone
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
  bool has_it_ = true;
};

// The thread, which holds the lock, releases it during the lifetime of this object, or until end().
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  ~Unlocked() { end(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  void end() {
    if (thread_) ask_for_lock([this] { PyEval_RestoreThread(thread_); });
    thread_ = nullptr;
  }

 private:
  PyThreadState* thread_;
};

}  // namespace python
}  // namespace echotrain
